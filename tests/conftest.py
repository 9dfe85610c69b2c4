"""Triton's interpreter where there is no GPU, and the marker `gpu` for what needs one."""

import os
import signal

import pytest

# Several processes of tests share the cores: threads that wait for a core by spinning take it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Told to keep no bytecode, each of many processes would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def lock(tmp_path_factory):
    """No test waits for a measurement of this machine, nor for another process of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMPERF_LOCK", str(tmp_path_factory.mktemp("lock") / "lmperf.lock"))
        yield


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped where there is none")


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device on this machine")
    for item in items:
        if item.get_closest_marker("gpu"):  # not by keyword: an id of a parameter is one, too
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def same_numbers():
    """Inputs that a test draws are the same in every run, whatever was drawn before it."""
    torch.manual_seed(0)
