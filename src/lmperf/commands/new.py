"""`lmperf new`: write the two files of a new benchmark."""

from __future__ import annotations

import builtins
import keyword
import pkgutil
import re
import sys
from pathlib import Path
from string import Template

import click

import lmperf
from lmperf.benchmarks import stems
from lmperf.errors import UserError

# Names with a meaning of their own in `report/<machine>`, besides those of its pages: the stem of a
# benchmark names its page, its CSV and its figures.
_IN_REPORT = (
    *("code", "cost", "evidence", "figures", "index", "machine"),
    *("repeatability", "store", "traces"),
)

_BENCHMARK = """\
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Workload

GRID = {"seq_len": [1024, 4096], "implementation": ["eager"]}


class $class_name(Timed):
    title = "$title"
    order = 45  # place of its page: after Attention (40)
    axes = (Axis("seq_len", int),)
    implementations = (Implementation("eager"),)
    grids = {"cpu": [GRID], "gpu": [GRID]}

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch  # not at the top: the workflow imports this module without torch

        n = case.axes["seq_len"]
        x = torch.randn(n, n, generator=torch.Generator(device).manual_seed(seed), device=device)
        phase = Phase(lambda _: x.softmax(dim=-1), bytes=2 * x.nbytes)
        return Workload({"forward": phase}, resident=[x])
"""
_TEMPLATE = """\
{% extends "page.md.j2" %}
{% set found = rows("$name") %}

{% block question %}$title: how fast is it?{% endblock %}

{% block summary %}
{% call finding() %}
`x.softmax(dim=-1)` of a square matrix in float32 reads and writes
{{ found.range("bandwidth_gbps") | range }} GB/s.
{% endcall %}
{% endblock %}

{% block page %}
{{ table("$title", found, "seq_len implementation",
         [time(), number("bandwidth_gbps", "read + write", unit="GB/s")]) }}

{% call part() %}
{% set rate = found.range("bandwidth_gbps").high | sig %}
{{ line_chart("Up to %s GB/s" % rate, found, "seq_len", "bandwidth_gbps", ("length", "GB/s")) }}
{% endcall %}
{% endblock %}
"""


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
        Path(f"src/lmperf/benchmarks/{name}.py"): Template(_BENCHMARK),
        Path(f"templates/{name}.md.j2"): Template(_TEMPLATE),
    }
    for path in files:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} does not exist; change into a checkout, or use -C DIR")
        if path.exists():
            raise UserError(f"{path} already exists; choose another name")
    for path, text in files.items():
        path.write_text(text.substitute(name=name, class_name=class_name, title=words.capitalize()))
        print(path)


def _require_valid_name(name: str, class_name: str) -> None:
    """Raise UserError unless a benchmark, its module and its class can have these names."""
    imported = re.search(rf"\b{class_name}\b", _BENCHMARK.partition("class ")[0])
    if not re.fullmatch(r"[a-z][a-z0-9_]{,63}", name) or keyword.iskeyword(class_name) or imported:
        raise UserError(
            f"{name!r} is not a valid name for a benchmark; use a-z, 0-9 and _, begin with a"
            " letter, and avoid names of Python and of lmperf.benchmark"
        )
    if user := _user_of(name):
        raise UserError(f"{name} is taken: it is {user}; choose another name")


def _user_of(name: str) -> str | None:
    """Return who uses a name already, in words; None if it is free for a benchmark.

    Each benchmark becomes a rule of the workflow, a module, a page, a CSV and a template.
    """
    from lmperf.reporting.pages import FRAMES, FURTHER

    workflow = [Path("Snakefile"), *Path("rules").glob("*.smk")]
    texts = [path.read_text() for path in workflow if path.is_file()]
    users = {
        "a benchmark": stems(),
        "a rule of the workflow": re.findall(r"^rule (\w+):", "\n".join(texts), re.M),
        "a page, a file or a folder of a report": (*_IN_REPORT, *FRAMES, *FURTHER),
        "a word of Python": (*keyword.kwlist, *keyword.softkwlist, *dir(builtins)),
        "a module of Python": sys.stdlib_module_names,
        "a part of lmperf": [module.name for module in pkgutil.iter_modules(lmperf.__path__)],
    }
    return next((words for words, names in users.items() if name in names), None)
