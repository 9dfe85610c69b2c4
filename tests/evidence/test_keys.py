"""Which changes of the code make a number stale, and which do not."""

import ast
import sys
import textwrap
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from lmperf import sources
from lmperf.evidence import keys
from lmperf.evidence.keys import (
    METHOD_VERSION,
    closure,
    code_fingerprint,
    method_digest,
    not_followed,
)

# The digest of the measuring core that METHOD_VERSION stands for. After a change there: when it can
# change no number, put the new digest here; when it can, raise METHOD_VERSION as well.
METHOD = (5, "33ea81677f6eb387")

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
    for cached in (keys._digest_of, keys._imports_of, sources._find):
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


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A kernel of the user's own, which imports other code of theirs by every form of import."""
    files = {
        "here/own_kernel.py": OWN_KERNEL,
        "here/own_sibling.py": "import own_sibling_of_it\n",
        "here/own_sibling_of_it.py": "width = 1\n",
        "here/own_space/inner/part.py": "width = 1\n",
        "here/own_named.py": "width = 1\n",
        "here/own_called.py": "width = 1\n",
        "here/own_unused.py": "width = 1\n",
        "lib/site-packages/installed/__init__.py": "import own_unused\n",
        "lib/site-packages/built.cpython-311-x86_64-linux-gnu.so": "",
        "checkout/src/editable/__init__.py": "raise RuntimeError('imported')\n",
        "checkout/src/editable/deep/__init__.py": "",
        "checkout/src/editable/deep/end.py": "width = 1\n",
        "checkout/src/triton/__init__.py": "a build of one's own, whose version a key has\n",
        f"checkout/src/editable/native{EXTENSION_SUFFIXES[0]}": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in ("lib/site-packages", "checkout/src", "here"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    return tmp_path


OWN_KERNEL = """
import statistics
import torch, triton
import own_sibling as s
import editable.deep.end
from editable import native
from own_space.inner.part import width
from installed import anything
from lmperf.attention.reference import attention
import importlib, nowhere.at_all
def kernel(q, name):
    importlib.import_module("own_called")
    importlib.import_module("own_" + name)
    return "own_named:width"
"""


def test_other_code_of_the_users_own_is_followed_wherever_it_lies(own):
    found = closure("own_kernel")
    assert list(found) == [
        *("editable", "editable.deep", "editable.deep.end", "own_called", "own_kernel"),
        *("own_named", "own_sibling", "own_sibling_of_it", "own_space.inner.part"),
    ]
    assert all(path.is_relative_to(own) for path in found.values())
    assert not {*found, "installed", "torch"} & (sys.modules.keys() - {"torch"})


def test_what_cannot_be_followed_is_named(own):
    assert not_followed("own_kernel") == [
        *("editable.native", "import_module(...) in own_kernel", "nowhere.at_all"),
    ]
    assert not_followed("own_named") == []


@pytest.mark.parametrize(
    "name",
    [
        *("here/own_sibling_of_it.py", "here/own_space/inner/part.py", "here/own_named.py"),
        *("here/own_called.py", "checkout/src/editable/deep/end.py"),
    ],
)
def test_a_change_of_what_a_users_module_imports_makes_its_rows_stale(own, name):
    before = digest_of("own_kernel")
    (own / name).write_text("# why\nwidth = 1\n")
    assert digest_of("own_kernel") == before
    (own / name).write_text("width = 2\n")
    assert digest_of("own_kernel") != before


@pytest.mark.parametrize("name", ["here/own_unused.py", "lib/site-packages/installed/__init__.py"])
def test_a_change_of_what_it_does_not_import_or_of_an_installed_package_does_not(own, name):
    before = digest_of("own_kernel")
    (own / name).write_text("width = 2\n")
    assert digest_of("own_kernel") == before


def test_an_installed_module_of_the_users_own_counts_with_its_package(own):
    before = digest_of("installed")
    (own / "lib/site-packages/installed/__init__.py").write_text("width = 2\n")
    assert digest_of("installed") != before


def test_what_a_benchmark_declares_in_words_is_code_elsewhere(own):
    (own / "here/own_named.py").write_text("class Sizes:\n    columns = 4\n")
    before = digest_of("own_kernel")
    (own / "here/own_named.py").write_text("class Sizes:\n    columns = 8\n")
    assert digest_of("own_kernel") != before


@pytest.mark.parametrize(
    "content",
    [
        b"x = 1\ndef f(:\n",
        b"x = '\0'",
        b"x = '\xff'",
        b"(" * 5000,
        b"x = " + b"-" * 50_000 + b"1",
        b"x = 1" + b" + 1" * 30_000,
        b"x = 1" + b" + 1" * 600,
    ],
)
def test_a_users_file_that_is_no_python_counts_by_its_text(own, content):
    (own / "here/own_sibling.py").write_bytes(content)
    before = digest_of("own_kernel")
    (own / "here/own_sibling.py").write_bytes(content + b" ")
    assert digest_of("own_kernel") != before


def test_a_file_in_another_encoding_is_read_in_it(own):
    (own / "here/own_sibling.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    before = digest_of("own_kernel")
    (own / "here/own_sibling.py").write_text("x = 'é'\n", encoding="utf-8")
    assert digest_of("own_kernel") == before


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

    def digest(source):
        return keys._canonical(keys.without_words(ast.parse(source)))

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
