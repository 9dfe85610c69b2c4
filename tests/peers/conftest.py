"""Fake packages of other projects: the functions that peers call, written in PyTorch."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

# Package -> path of a module, and its source.
SOURCES = {
    "flash-attn-4": (
        "flash_attn/cute.py",
        """
import torch.nn.functional as F

def flash_attn_func(q, k, v, causal=False, deterministic=False):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2), None
""",
    ),
}


class Packages:
    """A folder on `sys.path` that is the only place where packages of peers are found."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, package, version, source=None):
        module = package.replace("-", "_")
        for old in self.folder.glob(f"{module}-*.dist-info"):
            old.rename(old.with_suffix(".gone"))
        metadata = self.folder / f"{module}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")
        path, fake = SOURCES.get(package, (f"{module}.py", ""))
        (self.folder / path).parent.mkdir(exist_ok=True)
        (self.folder / path).write_text(source or fake)

    def version(self, package):
        found = importlib.metadata.distribution(package)
        if Path(found.locate_file("")) != self.folder:
            raise importlib.metadata.PackageNotFoundError(package)
        return found.version


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """An empty folder for fakes; packages installed on this machine are hidden."""
    found = Packages(tmp_path / "site")
    found.folder.mkdir()
    monkeypatch.syspath_prepend(str(found.folder))
    monkeypatch.setattr("lmperf.peers.table.metadata.version", found.version)
    for package in SOURCES:
        monkeypatch.delitem(sys.modules, package.replace("-", "_"), raising=False)
    yield found
    for package in SOURCES:
        sys.modules.pop(package.replace("-", "_"), None)
