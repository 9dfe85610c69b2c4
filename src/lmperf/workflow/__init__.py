"""Where the files of the workflow lie: the Snakefile, its rules and captions, and the templates.

In a checkout they are at its top. A wheel holds copies of them beside this file (`setup.py`), so
that a repository without a checkout of lmperf can include the workflow:

    import lmperf.workflow
    include: lmperf.workflow.SNAKEFILE
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
# Whether lmperf was installed from a wheel: no checkout surrounds the package.
IS_PACKAGED = (_HERE / "Snakefile").exists()
FOLDER = _HERE if IS_PACKAGED else _HERE.parents[2]
SNAKEFILE = str(FOLDER / "Snakefile")


def templates_of(root: Path) -> Path:
    """The folder of templates for a repository: its own if it is a checkout, else ours."""
    own = root / "templates"
    return own if not IS_PACKAGED and (own / "sections").is_dir() else FOLDER / "templates"
