"""Snakemake in processes that are forked from one that has imported it, which takes a second."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

SOURCE = Path(__file__).parents[2] / "src"

_SERVER = multiprocessing.get_context("forkserver")
# Not lmperf: a workflow imports the code of its checkout.
_SERVER.set_forkserver_preload(["snakemake.cli", "pandas"])


def snakemake(root: Path, environ: Mapping[str, str], *arguments: str) -> SimpleNamespace:
    """Run Snakemake in a checkout as `python -m snakemake` does; return what it said, and its code.

    The attributes are those of a `subprocess.CompletedProcess`.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, error = Path(folder) / "out", Path(folder) / "error"
        known = str(root), {**environ}, arguments, str(out), str(error)
        process = _SERVER.Process(target=_run, args=known)
        process.start()
        process.join()
        said = {"stdout": out.read_text(), "stderr": error.read_text()}
        return SimpleNamespace(returncode=process.exitcode, **said)


def _run(root: str, environ: dict[str, str], arguments: tuple[str, ...], out: str, error: str):
    for number, path in ((1, out), (2, error)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(root)
    os.environ.clear()
    os.environ.update(environ)
    # As in a new interpreter, without what pytest has added.
    installed = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix))]
    sys.path[:] = [root, *environ["PYTHONPATH"].split(os.pathsep), *installed, str(SOURCE)]
    sys.argv = ["snakemake", *arguments]
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
