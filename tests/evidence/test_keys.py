"""Which changes of the code make a number stale, and which do not."""

import sys
import textwrap

import pytest

from lmperf.evidence import keys
from lmperf.evidence.keys import METHOD_VERSION, closure, code_fingerprint, method_digest

# The digest of the measuring core that METHOD_VERSION stands for. After a change there: when it can
# change no number, put the new digest here; when it can, raise METHOD_VERSION as well.
METHOD = (3, "4122adac516f2cc8")

KERNEL = '''
"""Docstring."""
from .tiles import size  # why

def kernel(x):
    """Doubles."""
    return x * 2 + size
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules: kernel imports tiles; other stands alone."""
    root = tmp_path / "a_package"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "kernel.py").write_text(KERNEL)
    (root / "tiles.py").write_text("size = 64\n")
    (root / "other.py").write_text("import a_package.nothing\nuses = 'a_package.tiles:size'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    sys.modules.pop("a_package", None)


def digest_of(module):
    for cached in (keys._digest_of, keys._imports_of, keys._source_of):
        cached.cache_clear()
    code_fingerprint.cache_clear()
    return code_fingerprint(module)


@pytest.mark.parametrize(
    "same",
    [
        KERNEL.replace("# why", "# another comment"),
        KERNEL.replace("Doubles.", "Doubles, and says so."),
        KERNEL.replace("x * 2 + size", "(x*2) \\\n        + size"),
        KERNEL.replace('"""Docstring."""', ""),
    ],
)
def test_words_and_layout_change_nothing(package, same):
    before = digest_of("a_package.kernel")
    (package / "kernel.py").write_text(same)
    assert digest_of("a_package.kernel") == before


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("kernel", KERNEL.replace("* 2", "* 3")),
        ("kernel", KERNEL + "\nflag = 'a string'\n"),
        ("tiles", "size = 128\n"),
        ("__init__", "import os\n"),
    ],
)
def test_code_and_what_it_imports_change_it(package, module, text):
    before = digest_of("a_package.kernel")
    (package / f"{module}.py").write_text(text)
    assert digest_of("a_package.kernel") != before


def test_other_modules_change_nothing(package):
    before = digest_of("a_package.kernel")
    (package / "other.py").write_text("x = 2\n")
    assert digest_of("a_package.kernel") == before


def test_a_module_named_in_a_string_is_followed(package):
    digest_of("a_package.other")
    assert "a_package.tiles" in closure("a_package.other")


def test_words_and_which_cells_there_are_change_nothing():
    source = """
    class Softmax(Timed):
        title = "Softmax"
        grids = {"cpu": [1]}
        columns = ("peak",)
        stated = {"steps": 7}
        order = 3
        phases = ("forward",)

        def not_applicable(self, axes, implementation):
            return None
    """
    source = textwrap.dedent(source)
    digest = keys.source_digest
    for word, other in {
        "[1]": "[1, 2]",
        '"Softmax"': '"S"',
        '"peak"': '"median"',
        "order = 3": "order = 4",
        '"steps": 7': "",
        "return None": "return 'too large'",
    }.items():
        assert word in source and digest(source) == digest(source.replace(word, other)), word
    assert digest(source) == digest(source[: source.index("    def ")])
    assert digest(source) != digest(source.replace("forward", "backward"))


def test_a_kernel_belongs_to_the_benchmarks_that_import_it():
    kernel = "lmperf.attention.triton"
    assert kernel in closure("lmperf.benchmarks.flash_attention")
    assert kernel in closure("lmperf.benchmarks.flash_attention_check")
    for stem in ("attention", "ceilings", "memory", "mixed_precision", "lrpe"):
        assert kernel not in closure(f"lmperf.benchmarks.{stem}"), stem


def test_a_change_of_the_measuring_core_is_declared():
    assert (METHOD_VERSION, method_digest()) == METHOD, (
        "the measuring core changed: see the comment at METHOD in this file"
    )
