"""`lmperf new`: write the two files of a new benchmark."""

from __future__ import annotations

import re
from pathlib import Path

import click

from lmperf.commands.options import scaffold
from lmperf.errors import UserError


@click.command(short_help="Write the two files of a new benchmark.")
@click.argument("name")
def new(name: str):
    """Write the module and the template of a benchmark NAME. It runs as written: it times softmax.

    \b
    Example:
      lmperf new softmax
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{,63}", name):
        raise UserError(
            f"{name!r} is not a valid name for a benchmark; use a-z, 0-9 and _, and begin with a"
            " letter"
        )
    words = name.replace("_", " ")
    class_name = words.title().replace(" ", "")
    files = {
        Path(f"src/lmperf/benchmarks/{name}.py"): scaffold("benchmark.py.txt"),
        Path(f"templates/{name}.md.j2"): scaffold("benchmark.md.j2"),
    }
    for path in files:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} does not exist; change into a checkout, or use -C DIR")
        if path.exists():
            raise UserError(f"{path} already exists; choose another name")
    for path, text in files.items():
        filled = text.substitute(name=name, class_name=class_name, title=words.capitalize())
        path.write_text(filled, encoding="utf-8")
        print(path)
