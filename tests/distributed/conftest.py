"""Fixtures: what groups of gloo processes return, computed once for all test processes."""

import functools
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock

sys.path.insert(0, str(Path(__file__).parent))

import gloo


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory, worker_id):
    """`gloo.on_ranks` whose results the test processes share: each group runs once."""
    own = tmp_path_factory.getbasetemp()
    folder = own if worker_id == "master" else own.parent

    @functools.cache
    def shared(ranks, function, **arguments):
        words = [f"{name}={value}" for name, value in sorted(arguments.items())]
        path = folder / "-".join([function.__module__, function.__name__, str(ranks), *words])
        with FileLock(f"{path}.lock"):
            if not path.exists():
                part = path.with_suffix(".part")
                torch.save(gloo.on_ranks(ranks, functools.partial(function, **arguments)), part)
                part.rename(path)
        return torch.load(path, weights_only=False)

    return shared
