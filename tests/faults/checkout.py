"""A copy of the checkout that tests measure, disturb and measure again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import configurations

from lmperf.evidence.store import read

ROOT = Path(__file__).parents[2]
MACHINE = "here"
CONFIG = configurations.attention(32, 48, 64)
GROUPS = 3
# Environment variable by which all processes of a run are found, whatever their parent.
MARK = "LMPERF_FAULTS_RUN"


def whole(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV in which nothing is damaged."""
    rows, faults = read(path)
    assert not faults, faults
    return rows


class Checkout:
    """A copy of what a clone has of the pipeline, with a small grid and no evidence."""

    def __init__(self, root: Path, config: str = CONFIG):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "Snakefile", root)
        for folder in ("config", "profiles", "rules", "templates", "src"):
            # Bytecode saves a second; another process may be about to rename a *.pyc.NUMBER.
            ignored = shutil.ignore_patterns("*.pyc.*", "*.egg-info")
            shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
        (root / "config/config.yaml").write_text(config)

    def start(self, *command: str) -> Run:
        """Start a Python command in a process group of its own."""
        return Run(self.root, command)

    def run(self, *command: str) -> Run:
        """Start a command as `start` does and wait for its end."""
        return self.start(*command).wait()

    @property
    def rows(self) -> list[dict[str, str]]:
        return whole(self.root / f"report/{MACHINE}/evidence/attention.csv")

    def groups_stored(self) -> int:
        """How many groups of cases all jobs have stored; a group measured twice counts twice."""
        cost = whole(self.root / f"report/{MACHINE}/store/cost.csv")
        last = {row["started_at"]: int(row["groups"]) for row in cost}  # a job adds to its own
        return sum(last.values())


REPORT = ("-m", "snakemake", "--cores", "1", "report/report.md")


class Run:
    """A running command with all processes that it started."""

    def __init__(self, root: Path, command: tuple[str, ...]):
        self.mark = uuid.uuid4().hex
        path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
        marked = {"PYTHONPATH": path, "LMPERF_COMMIT": "0" * 40, MARK: self.mark}
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=root,
            env={**os.environ, **marked},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.code: int | None = None
        self.said = ""

    def wait(self, limit_s: float = 300.0) -> Run:
        """Wait until the command ends."""
        self.said = self._process.communicate(timeout=limit_s)[0]
        self.code = self._process.returncode
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of the command's group, as a terminal does."""
        os.killpg(self.pid, number)

    def job(self) -> int | None:
        """The id of the process that measures, if it is running."""
        return next((pid for pid in self.alive() if b"measure" in _words(pid)), None)

    def workers(self) -> list[int]:
        """The ids of the workers: all session leaders except the command itself."""
        return [pid for pid in self.alive() if pid != self.pid and _session(pid) == pid]

    def alive(self) -> list[int]:
        """The ids of the running processes that this run has started."""
        mark = f"{MARK}={self.mark}".encode()  # a zombie has no environment
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [pid for pid in pids if mark in _read(pid, "environ")]

    def gone(self, limit_s: float = 10.0) -> bool:
        """Whether all processes of the run end within the limit."""
        until = time.monotonic() + limit_s
        while self.alive():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _words(pid: int) -> list[bytes]:
    return _read(pid, "cmdline").split(b"\0")


def _session(pid: int) -> int | None:
    """The session of a process; None if it has ended."""
    with suppress(ProcessLookupError):
        return os.getsid(pid)
