"""The planted module `imports` starts a process; tests that import it end it."""

import subprocess

import pytest

from lmperf.selftest.planted import LEFT_BEHIND


@pytest.fixture(autouse=True)
def planted_process_ends(monkeypatch):
    """End each process that a test starts by importing `lmperf.selftest.planted.imports`."""
    started, start = [], subprocess.Popen

    def kept(command, *arguments, **more):
        process = start(command, *arguments, **more)
        if LEFT_BEHIND in command:
            started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", kept)
    yield
    for process in started:
        process.kill()
        process.wait()
