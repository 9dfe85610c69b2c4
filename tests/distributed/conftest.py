"""A fixture: what two gloo processes return, computed once for all test processes."""

import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

import all_cases
from ranks import on_ranks


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory, worker_id):
    """What `all_cases.run` returned on each of two ranks."""
    own = tmp_path_factory.getbasetemp()
    path = (own if worker_id == "master" else own.parent) / "two_ranks.pt"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            part = path.with_suffix(".part")
            torch.save(on_ranks(2, all_cases.run), part)
            part.rename(path)
    return torch.load(path, weights_only=False)
