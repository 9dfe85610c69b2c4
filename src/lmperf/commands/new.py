"""`lmperf new`: write the two files of a new benchmark."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from lmperf.commands.options import scaffold
from lmperf.errors import UserError
from lmperf.reporting.files import write_files

# Files of a report that have no template: a benchmark's stem names its CSV and its page.
_IN_REPORT = ("cost", "index", "machine", "repeatability")


@click.command(short_help="Write the two files of a new benchmark.")
@click.argument("name")
def new(name: str):
    """Write the module and the template of a benchmark NAME. It runs as written: it times softmax.

    \b
    Example:
      lmperf new softmax
    """
    words = name.replace("_", " ")
    class_name = words.title().replace(" ", "")
    _require_valid_name(name, class_name)
    files = {
        Path(f"src/lmperf/benchmarks/{name}.py"): scaffold("benchmark.py.txt"),
        Path(f"templates/{name}.md.j2"): scaffold("benchmark.md.j2"),
    }
    for path in files:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} does not exist; change into a checkout, or use -C DIR")
    filled = {"name": name, "class_name": class_name, "title": words.capitalize()}
    texts = {path: text.substitute(filled) for path, text in files.items()}
    write_files(texts, "choose another name")
    print(*files, sep="\n")


def _require_valid_name(name: str, class_name: str) -> None:
    """Raise UserError unless a benchmark, its module and its class can have these names."""
    header = scaffold("benchmark.py.txt").template.partition("class ")[0]
    imported = re.search(rf"\b{class_name}\b", header)
    is_word = keyword.iskeyword(name) or keyword.iskeyword(class_name)
    if not re.fullmatch(r"[a-z][a-z0-9_]{,63}", name) or is_word or imported:
        raise UserError(
            f"{name!r} is not a valid name for a benchmark; use a-z, 0-9 and _, begin with a"
            " letter, and avoid names of Python and of lmperf.benchmark"
        )
    if name in _IN_REPORT:
        raise UserError(f"{name} is a file of a report; choose another name")
