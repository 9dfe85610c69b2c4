"""The Git repositories of a report and of lmperf: the commit of the code that measures."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lmperf.errors import UserError
from lmperf.machine.software import version_of

# Folders without code: config/, whose values are in the rows, and what lmperf writes.
_NO_CODE = ("config", "report", "site")
# Git sets these for a hook: they name the repository of the hook, wherever Git is asked.
_SET_FOR_HOOKS = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE"),
}
_PACKAGE = Path(__file__).resolve().parents[1]


def git(folder: Path, *arguments: str) -> bytes:
    """Return the output of a Git command in a folder, of the repository that the folder is in.

    Raises:
        UserError: it failed, or Git cannot be run.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        environ = {name: value for name, value in os.environ.items() if name not in _SET_FOR_HOOKS}
        done = subprocess.run(command, capture_output=True, env=environ)
    except OSError as error:
        raise UserError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        raise UserError(done.stderr.decode(errors="replace").strip().partition("\n")[0])
    return done.stdout


def git_text(folder: Path, *arguments: str) -> str:
    """Return the output of a Git command as a text; errors as for `git`."""
    return git(folder, *arguments).decode(errors="replace").strip()


def commit_facts(root: Path, no_code: Iterable[str] = _NO_CODE) -> tuple[dict[str, Any], str]:
    """Return the commit of the code that measures (`commit`) and whether it differs (`dirty`); both
    are None if Git fails, and then its message is the second result.

    It is the commit of the repository at `root`, and outside Git that of lmperf's own checkout. The
    code differs if a tracked file there, but outside the folders `no_code`, was changed, or if a
    Python file is untracked and not ignored. Without a Git repository (an exported tree, a
    container) the variable LMPERF_COMMIT names the commit; then `dirty` is None.
    """
    if named := os.environ.get("LMPERF_COMMIT"):
        return {"commit": named, "dirty": None}, ""
    return _commit(root, no_code) if is_in_git(root) else _commit(_PACKAGE)


def commit_words(facts: Mapping[str, Any]) -> str:
    """Return a commit as rows name it: twelve digits, and `-dirty` if the code differs from it."""
    return (facts["commit"] or "unknown")[:12] + "-dirty" * bool(facts["dirty"])


def _commit(place: Path, no_code: Iterable[str] = _NO_CODE) -> tuple[dict[str, Any], str]:
    code = [".", *(f":(exclude){folder}" for folder in no_code)]
    try:
        commit = git_text(place, "log", "-1", "--no-show-signature", "--format=%H")
        status = git_text(place, "status", "--porcelain", "--untracked-files=all", "--", *code)
    except UserError as error:
        return {"commit": None, "dirty": None}, str(error)
    lines = status.splitlines()
    changed = [
        line for line in lines if not line.startswith("??") or line.strip('"').endswith(".py")
    ]
    return {"commit": commit, "dirty": bool(changed)}, ""


def lmperf_version(root: Path) -> str | None:
    """Return the version of lmperf that runs, with its commit if it runs from another checkout.

    None if lmperf is not installed. In a checkout of lmperf at `root`, the commit of the rows says
    more than the version.
    """
    version = version_of("lmperf")
    with contextlib.suppress(UserError):
        tops = {git_text(place, "rev-parse", "--show-toplevel") for place in (_PACKAGE, root)}
        # Not if it was installed in a folder that Git ignores.
        if version and len(tops) == 2 and git_text(_PACKAGE, "ls-files", "--", "."):
            return f"{version} ({commit_words(_commit(_PACKAGE)[0])})"
    return version


def is_in_git(folder: Path) -> bool:
    """Return whether a folder lies in a Git repository, or in a worktree of one."""
    return any((up / ".git").exists() for up in (folder.resolve(), *folder.resolve().parents))
