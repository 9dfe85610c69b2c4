"""Tests of the code that an entry's digests cover, on small packages written for each test."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from lmperf.evidence.closure import Code, closure_of

PACKAGE = {
    "__init__.py": "",
    "kernel.py": (
        "SCALE = 2\nUNUSED = 1\ndef run(x):\n    return x * SCALE\ndef other(x):\n    return x\n"
    ),
    "ways.py": (
        "from lmperf import helpers\n"
        "def eager(x):\n    return helpers.double(x)\n"
        "def triton(x):\n    from lmperf.kernel import run\n    return run(x)\n"
        "def named():\n    return 'lmperf.kernel:run'\n"
    ),
    "helpers.py": "def double(x):\n    return x + x\ndef triple(x):\n    return 3 * x\n",
    "kernels/__init__.py": "from lmperf.kernels.fast import run\nTHREADS = 1\nset_up()\n",
    "kernels/fast.py": "def run(x):\n    return x\n",
    "patch.py": "register(1)\nUNUSED = 1\n",
    "optional.py": (
        "try:\n    from lmperf.kernels.fast import run\nexcept ImportError:\n    pass\n"
    ),
    "plugins.py": "register(3)\n",
    "dtypes.py": "DTYPES = {1: 2}\n",
    "main.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from lmperf.patch import UNUSED\n"
        "import lmperf.plugins\n"
        "from lmperf import kernels, optional\n"
        "from lmperf.dtypes import DTYPES\n"
        "def reexported(x):\n    return kernels.run(x)\n"
        "def patched():\n    import lmperf.patch\n"
        "def tried(x):\n    return optional.run(x)\n"
        "def table(x):\n    return DTYPES[x]\n"
    ),
}


@pytest.fixture
def package(tmp_path):
    for file, text in PACKAGE.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "path", "old", "new", "counts"),
    [
        ("ways:triton", "kernel.py", "SCALE = 2", "SCALE = 3", True),
        ("ways:named", "kernel.py", "SCALE = 2", "SCALE = 3", True),
        ("kernel:run", "kernel.py", "SCALE = 2", "SCALE = 3", True),
        ("ways:triton", "kernel.py", "UNUSED = 1", "UNUSED = 2", False),
        ("ways:triton", "kernel.py", "    return x\n", "    return -x\n", False),
        ("ways:triton", "kernel.py", "SCALE = 2", "SCALE = 2  # a comment", False),
        ("ways:triton", "kernel.py", "run(x):\n", 'run(x):\n    """A docstring."""\n', False),
        ("ways:triton", "helpers.py", "x + x", "2 * x", False),
        ("ways:eager", "helpers.py", "x + x", "2 * x", True),
        ("ways:eager", "helpers.py", "3 * x", "x * 3", False),
        ("ways:triton", "ways.py", "double(x)", "double(-x)", False),
        ("ways:triton", "kernel.py", "UNUSED = 1", "register(run)", True),
        ("ways:triton", "kernel.py", "UNUSED = 1", "@register\ndef _(x):\n    return 1", True),
        ("ways:triton", "kernel.py", "UNUSED = 1", "for _ in (1,):\n    register(_)", True),
        ("helpers:double", "helpers.py", "def triple", "S = [x for x in range(3)]\ndef a", False),
        ("main:reexported", "kernels/fast.py", "return x", "return -x", True),
        ("main:reexported", "kernels/__init__.py", "set_up()", "set_up(1)", True),
        ("main:reexported", "kernels/__init__.py", "THREADS = 1", "THREADS = 2", False),
        ("main:reexported", "patch.py", "register(1)", "register(2)", False),
        ("main:patched", "patch.py", "register(1)", "register(2)", True),
        ("main:patched", "patch.py", "UNUSED = 1", "UNUSED = 2", False),
        ("main:tried", "kernels/fast.py", "return x", "return -x", True),
        ("main:tried", "optional.py", "    pass", "    raise", True),
        ("main:table", "plugins.py", "register(3)", "register(4)", True),
        ("main:table", "dtypes.py", "{1: 2}", "{1: 3}", False),
    ],
)
def test_digest_changes_only_with_code_that_entry_reaches(
    package, code_in, name, path, old, new, counts
):
    before = code_in(package).closure(f"lmperf.{name}")
    assert old in PACKAGE[path]
    (package / path).write_text(PACKAGE[path].replace(old, new))
    assert (code_in(package).closure(f"lmperf.{name}") != before) == counts


def test_declaration_is_left_out_of_benchmarks_only(tmp_path, code_in):
    def of(base: str, other: str) -> str:
        texts = {
            "benchmarks/b.py": (
                "from lmperf.benchmarks.base import Base\nfrom lmperf.model import Model\n"
                "class B(Base):\n    model = Model\n"
            ),
            "benchmarks/base.py": f"class Base:\n    grids = {base}\n",
            "model.py": f"class Model:\n    grids = {other}\n",
        }
        folder = tmp_path / f"{base}{other}"
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return code_in(folder).closure("lmperf.benchmarks.b:B").fingerprint

    assert of("1", "1") == of("2", "1")
    assert of("1", "1") != of("1", "2")


def test_closure_follows_module_that_child_process_runs():
    found = closure_of("lmperf.instruments.first_steps:measured").digests
    assert "lmperf.transformer.training:adamw" in found


KERNEL = """
import statistics
import torch, triton
import custom_sibling as s
import editable.deep.end
from editable import native
from custom_space.inner.part import width
from installed import anything
from lmperf.attention.reference import attention
import importlib, nowhere.at_all
def kernel(q, name):
    importlib.import_module("custom_called")
    importlib.import_module("custom_" + name)
    return "custom_named:width"
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Three folders on sys.path with a user's kernel that uses every form of import."""
    files = {
        "here/custom_kernel.py": KERNEL,
        "here/custom_sibling.py": "import custom_imported_by_sibling\n",
        "here/custom_imported_by_sibling.py": "width = 1\n",
        "here/custom_space/inner/part.py": "width = 1\n",
        "here/custom_named.py": "width = 1\n",
        "here/custom_called.py": "width = 1\n",
        "here/custom_unused.py": "width = 1\n",
        "lib/site-packages/installed/__init__.py": "import custom_unused\n",
        "src/editable/__init__.py": "raise RuntimeError('imported')\n",
        "src/editable/deep/__init__.py": "from . import beside\n",
        "src/editable/deep/beside.py": "from ..above import width\n",
        "src/editable/above.py": "width = 1\n",
        "src/editable/deep/end.py": "width = 1\n",
        "src/triton/__init__.py": "a build whose version is in the environment\n",
        f"src/editable/native{EXTENSION_SUFFIXES[0]}": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for folder in ("lib/site-packages", "src", "here"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    return tmp_path


def of_kernel():
    return Code().closure("custom_kernel:kernel")


def test_closure_follows_every_form_of_import_in_user_code(folders):
    symbols = {name for name in of_kernel().digests if name.startswith("lmperf.")}
    assert "lmperf.attention.reference:attention" in symbols
    assert "lmperf.attention.reference:attention_float64" not in symbols
    found = [name for name in of_kernel().digests if name not in symbols]
    assert found == [
        *("custom_called", "custom_imported_by_sibling", "custom_kernel", "custom_named"),
        *("custom_sibling", "custom_space.inner.part", "editable", "editable.above"),
        *("editable.deep", "editable.deep.beside", "editable.deep.end"),
    ]
    assert not {*found, "installed"} & sys.modules.keys()
    before = of_kernel()
    part = folders / "here/custom_space/inner/part.py"
    part.write_text("# a comment\nwidth = 1\n")
    assert of_kernel() == before
    part.write_text("width = 2\n")
    assert of_kernel() != before


def test_digest_covers_installed_module_that_is_the_entry(folders):
    before = Code().closure("installed:anything")
    (folders / "lib/site-packages/installed/__init__.py").write_text("width = 2\n")
    assert Code().closure("installed:anything") != before


@pytest.mark.parametrize(
    "content",
    [
        b"x = 1\ndef f(:\n",
        b"x = '\xff'",
        b"(" * 5000,
        b"x = " + b"-" * 50_000 + b"1",
        b"x = 1" + b" + 1" * 600,
    ],
)
def test_digest_of_unparsable_user_file_covers_its_bytes(folders, content):
    (folders / "here/custom_sibling.py").write_bytes(content)
    before = of_kernel()
    (folders / "here/custom_sibling.py").write_bytes(content + b" ")
    assert of_kernel() != before
