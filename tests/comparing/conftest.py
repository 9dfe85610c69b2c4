"""A small Git repository with this project's code."""

import shutil
from pathlib import Path

import pytest
from repository import git

ROOT = Path(__file__).parents[2]
CONFIG = """
preset: cpu
machine: here
benchmarks: [flash_attention, lrpe]
grid:
  flash_attention:
    {seq_len: [64], d_head: [16, 32], dtype: [float32], implementation: [eager, tiled]}
"""


class Repository:
    """A checkout with one commit."""

    def __init__(self, root: Path):
        self.root = root

    def git(self, *arguments: str) -> str:
        return git(self.root, *arguments)

    def edit(self, path: str, before: str, after: str) -> None:
        """Replace a text that occurs once in a file."""
        file = self.root / path
        assert file.read_text().count(before) == 1, before
        file.write_text(file.read_text().replace(before, after))

    @property
    def worktrees(self) -> int:
        """The number of worktrees beside the checkout."""
        return len(self.git("worktree", "list").splitlines()) - 1


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text(CONFIG)
    (root / ".gitignore").write_text("__pycache__\n")
    made = Repository(root)
    # Other tests load the machine, where no comparison is better than unresolved.
    made.edit("src/lmperf/measuring/sensors.py", "MOST_LOAD = 0.1", "MOST_LOAD = 9.9")
    made.edit("src/lmperf/comparing/run.py", "CONFIRMATIONS = 2", "CONFIRMATIONS = 0")
    made.git("init", "-q")
    made.git("add", ".")
    made.git("commit", "-qm", "one")
    return made
