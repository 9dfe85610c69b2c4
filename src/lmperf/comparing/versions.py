"""Versions of the code to compare: the working tree, a Git revision, or a directory.

In a checkout they are versions of lmperf with everything beside it. In a user's own repository
they are versions of the user's implementations, all measured by the lmperf that runs.

A Git revision is checked out as a worktree in a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load, stems
from lmperf.errors import UserError
from lmperf.evidence.keys import METHOD_VERSION, code_of
from lmperf.evidence.plan import Plan
from lmperf.evidence.syntax import digest
from lmperf.machine.repository import git_text
from lmperf.sources import find

# A script that runs with a version's own code and prints its method and the result of `codes`.
# Standard input holds `sys.path` and the argument of `codes`. A version that lacks `codes` measures
# by another method, so its answer is refused. Only one that lacks `protocol` imports torch.
_QUESTION = """
import json, sys
sys.path[:], asked = json.load(sys.stdin)
from lmperf.comparing import versions
from lmperf.evidence import keys
found = versions.codes(asked) if hasattr(versions, "codes") else {}
if hasattr(versions, "protocol"):
    protocol = versions.protocol()
else:
    from lmperf.measuring import worker
    protocol = getattr(worker, "PROTOCOL", None)
print(json.dumps({"method": (keys.METHOD_VERSION, protocol), "codes": found}))
"""
_git = partial(git_text, Path())
# Stem of a benchmark -> implementation -> digest of the implementation's code; None if absent.
Codes = dict[str, dict[str, str | None]]


@dataclass(frozen=True)
class Version:
    """A version of the code to time.

    Attributes:
        name: the name of the version in messages.
        tree: the checkout, with the code in ``src`` and custom implementations beside it.
        commit: the Git commit, if known.
    """

    name: str
    tree: Path
    commit: str | None = None

    @cached_property
    def search_path(self) -> list[str]:
        """The `sys.path` of the version's workers: `tree` in place of the working tree."""
        here = {Path.cwd(), Path.cwd() / "src"}
        others = [entry for entry in sys.path if Path(entry).resolve() not in here]
        return [str(self.tree / "src"), str(self.tree), *others]

    def codes(self, chosen: Sequence[Plan]) -> Codes:
        """Digests of the code that the chosen benchmarks' implementations have in this version.

        Raises:
            UserError: the version measures by another method than this process.
        """
        answer = self._answer(chosen)
        here = [METHOD_VERSION, protocol()]
        if answer["method"] != here:
            theirs, ours = _method(*answer["method"]), _method(*here)
            raise UserError(
                f"{self.name} measures by {theirs}, this lmperf by {ours}: they cannot be timed in"
                " turn; `lmperf diff` compares results"
            )
        return answer["codes"]

    def _answer(self, chosen: Sequence[Plan]) -> Mapping[str, Any]:
        asked = {
            plan.stem: {
                "names": plan.implementations,
                "external": {n: asdict(added) for n, added in plan.benchmark.external.items()},
            }
            for plan in chosen
        }
        done = subprocess.run(
            [sys.executable, "-c", _QUESTION],
            input=json.dumps([self.search_path, asked]),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise UserError(f"{self.name}: its method of measuring cannot be determined: {why}")
        return json.loads(done.stdout)


def codes(asked: Mapping[str, Mapping[str, Any]]) -> Codes:
    """Digests of the code of implementations, in the version of lmperf that runs this function.

    `Version.codes` calls it in a child process of each version. asked: stem of a benchmark ->
    `names` of implementations, and declarations of peers and custom ones (`external`).
    """
    return {stem: _codes_of(stem, **what) for stem, what in asked.items()}


def _codes_of(stem: str, names: list[str], external: dict[str, Any]) -> dict[str, str | None]:
    if stem not in stems():
        return dict.fromkeys(names)
    benchmark = load(
        stem, {name: Implementation(**declared) for name, declared in external.items()}
    )
    return {
        name: digest(json.dumps(code_of(benchmark, name), sort_keys=True))
        if name in benchmark.known
        else None
        for name in names
    }


def protocol() -> int:
    """Return `PROTOCOL` of the workers, read from its source: their module imports torch."""
    source = find("lmperf.measuring.worker").source.read_text()
    return int(re.search(r"^PROTOCOL = (\d+)$", source, re.MULTILINE)[1])


def _method(version: int, protocol: int | None) -> str:
    return f"method {version} (workers {protocol or 'of an earlier kind'})"


def working_tree() -> Version:
    """The current directory as a version; the name says whether it has uncommitted changes."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", ".")
    except UserError:  # two directories can be compared without Git
        return Version("working tree", Path.cwd())
    words = f"{commit} with uncommitted changes" if changed else commit
    return Version(f"working tree ({words})", Path.cwd(), commit)


@contextlib.contextmanager
def version(name: str) -> Iterator[Version]:
    """A context with the version called `name`: a directory, or a checked-out Git revision.

    The checkout is removed at the end.

    Raises:
        UserError: `name` is neither such a directory nor a Git revision, or one without src/lmperf.
    """
    own = not _is_checkout(Path())  # a user's own repository
    if _is_checkout(Path(name)) or (own and (Path(name) / "config/config.yaml").is_file()):
        yield Version(name, Path(name).resolve())
        return
    try:
        commit = _git("rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    except UserError as error:
        if str(error):  # of Git, such as a folder that is no repository
            raise
        kind = "src/lmperf or config/config.yaml" if own else "src/lmperf"
        raise UserError(f"{name}: neither a Git revision nor a directory with {kind}") from None
    short = _git("rev-parse", "--short", commit)
    inside = _git("rev-parse", "--show-prefix")
    with _checked_out(commit) as tree:
        if not own and not _is_checkout(tree / inside):
            raise UserError(f"{name}: it has no src/lmperf")
        yield Version(name if name == short else f"{name} ({short})", tree / inside, short)


def _is_checkout(folder: Path) -> bool:
    return (folder / "src/lmperf").is_dir()


@contextlib.contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lmperf-compare-") as folder:
        tree = Path(folder).resolve() / f"lmperf-{commit[:12]}"
        try:
            quiet = "-c", "core.hooksPath=/dev/null"  # hooks are meant for the user's own checkouts
            _git(*quiet, "worktree", "add", "--detach", "-q", str(tree), commit)
            yield tree
        finally:
            with contextlib.suppress(UserError):
                _git("worktree", "remove", "--force", "--force", str(tree))
