"""What `lmperf init --course` finds in a repository with the adapters of the course."""

from pathlib import Path

import pytest
from repository import git

from lmperf.errors import UserError
from lmperf.own.course import BUCKETS, found_in

pytestmark = pytest.mark.process

ADAPTERS = '''
from own.wrappers import get_ddp

def get_flashattention_autograd_function_pytorch():
    from own.attention import Flash
    return Flash

def get_flashattention_autograd_function_triton():
    """Not here."""
    raise NotImplementedError

def get_ddp_bucketed(module, bucket_size_mb):
    pass

def ddp_bucketed_on_after_backward(ddp_model, optimizer):
    pass

def get_fsdp(module, compute_dtype=None):
    # Left for later.
    raise NotImplementedError("of the second week")
'''
FILES = {
    "own_adapters.py": ADAPTERS,
    "own/__init__.py": "",
    "own/wrappers.py": "def get_ddp(module):\n    return module\n",
    "own/attention.py": (
        "import torch\nclass Flash(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, q, k, v, is_causal=False):\n        return q\n"
    ),
    "own/model.py": (
        "from torch import nn\nclass Model(nn.Module):\n"
        "    def __init__(self, vocab_size, d_model, num_layers, theta):\n        pass\n"
        "    def forward(self, tokens):\n        pass\n"
    ),
    "own/training.py": (
        "class AdamW:\n    def step(self):\n        pass\n"
        "def cross_entropy(logits, targets):\n    pass\n"
    ),
    "else-where/other/__init__.py": "",
    "else-where/pyproject.toml": "",
    "else-where/other/model.py": (
        "class Other:\n    def __init__(self, vocab_size, d_model, num_layers):\n        pass\n"
        "    def forward(self, tokens):\n        pass\n"
    ),
    "tests/test_model.py": "class Model:\n    pass\n",
    "broken.py": "def (",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def files():
    return [path.relative_to(Path.cwd()) for path in Path.cwd().rglob("*.py")]


def test_adapters_and_basics_are_found_and_what_is_left_out_is_said(repository):
    (repository / "else-where/other/model.py").rename(repository / "own/other.py")
    found = {one.entry: one for one in found_in("own_adapters", files())}
    flash = found.pop("own_adapters:get_flashattention_autograd_function_pytorch")
    assert (flash.configured, flash.fault) == ("own.attention:Flash", "")
    buckets = found.pop("own_adapters:get_ddp_bucketed")
    assert buckets.configured == {"use": buckets.entry, "bucket_size_mb": BUCKETS}
    assert buckets.hooks == ("ddp_bucketed_on_after_backward",) and not buckets.fault
    assert found.pop("own.training:AdamW").fault.endswith("or an optimizer class"), "it is none"
    assert {entry: one.fault for entry, one in found.items()} == {
        "own_adapters:get_flashattention_autograd_function_triton": "it is not written yet",
        "own_adapters:get_ddp": "",
        "own_adapters:get_fsdp": "it is not written yet",
        "own.model:Model": "",
        "own.other:Other": (
            "own.model:Model is configured; to take this one instead, name it by --model"
        ),
        "own.training:cross_entropy": (
            "it is timed as a part of a train step that calls it (--train-step)"
        ),
    }


def test_what_cannot_be_imported_names_what_to_install(repository):
    """A class that imports a package in a folder, and the model in that package."""
    (repository / "own/model.py").unlink()
    path = repository / "own/attention.py"
    path.write_text("import other.kernels\n" + path.read_text())
    flash, *others = found_in("own_adapters", files())
    assert "it raises ModuleNotFoundError: No module named 'other'" in flash.fault
    assert flash.fault.endswith("; pip install -e ./else-where")
    faults = {one.entry: one.fault for one in others}
    assert (
        faults["else-where/other/model.py:Other"]
        == "it cannot be imported; pip install -e ./else-where"
    )


def test_adapters_that_cannot_be_imported_say_why(repository):
    (repository / "own/wrappers.py").unlink()
    faults = {one.entry: one.fault for one in found_in("own_adapters", files())}
    assert "No module named 'own.wrappers'" in faults["own_adapters:get_ddp_bucketed"]
    assert faults["own.model:Model"] == "", "though another one comes first by its path"


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        ("no_adapters", "--course: there is no module no_adapters below"),
        ("own.training", "own.training has none of the course's functions: get_flashattention"),
    ],
)
def test_module_without_adapters_is_refused(repository, adapters, words):
    with pytest.raises(UserError, match=words):
        found_in(adapters, files())
