"""Where the files of the workflow lie: the Snakefile, its rules and captions, and the templates.

In a checkout they are at its top. A wheel holds copies of them beside this file (`setup.py`), so
that a repository without a checkout of lmperf can include the workflow:

    import lmperf.workflow
    include: lmperf.workflow.SNAKEFILE
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
# No checkout surrounds a package that was installed from a wheel.
FOLDER = _HERE if (_HERE / "Snakefile").exists() else _HERE.parents[2]
SNAKEFILE = str(FOLDER / "Snakefile")
TEMPLATES = FOLDER / "templates"
