"""Git in the repositories that tests make."""

import os
import subprocess
from pathlib import Path

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(root: Path, *words: object) -> str:
    """Run a command of Git, without the user's configuration; return what it prints."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    known["GIT_CONFIG_GLOBAL"] = os.devnull
    command = ["git", *AUTHOR, *map(str, words)]
    done = subprocess.run(command, cwd=root, env=known, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, subject: str = "More") -> str:
    """Commit everything in a folder; return the commit."""
    git(root, "add", ".")
    git(root, "commit", "-qm", subject)
    return git(root, "rev-parse", "HEAD")
