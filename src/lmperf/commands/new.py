"""`lmperf new`: the two files of a benchmark, to begin with."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from lmperf.benchmarks import stems
from lmperf.errors import UserError

_BENCHMARK = """\
from lmperf.benchmark import Axis, Case, Implementation, Phase, Timed, Workload


class {name}(Timed):
    title = "{title}"
    order = 45  # its place in the write-up: after Attention (40)
    axes = (Axis("seq_len", int),)
    implementations = (Implementation("eager"),)
    grids = dict.fromkeys(
        ("cpu", "gpu"), [{{"seq_len": [1024, 4096], "implementation": ["eager"]}}]
    )

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch  # not at the top: the DAG reads this module where there is no torch

        n = case.axes["seq_len"]
        x = torch.randn(n, n, generator=torch.Generator(device).manual_seed(seed), device=device)
        phase = Phase(lambda _: x.softmax(dim=-1), bytes=2 * x.nbytes)
        return Workload({{"forward": phase}}, resident=[x])
"""
_TEMPLATE = """\
{{% extends "page.md.j2" %}}
{{% block question %}}how fast is {words}?{{% endblock %}}
{{% block words %}}
`x.softmax(dim=-1)` of a square matrix, in float32.
{{% endblock %}}
"""


@click.command(short_help="Write the two files of a benchmark of your own.")
@click.argument("name")
def new(name: str):
    """Write a benchmark NAME that runs as it is, a softmax, and the words of its section.

    \b
    Example:
      lmperf new softmax
    """
    words = name.replace("_", " ")
    named = {"name": words.title().replace(" ", ""), "title": words.capitalize(), "words": words}
    _refuse_a_name_that_is_taken(name, named["name"])
    files = {
        Path(f"src/lmperf/benchmarks/{name}.py"): _BENCHMARK,
        Path(f"templates/sections/{name}.md.j2"): _TEMPLATE,
    }
    for path in files:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent}: is not here; change into a checkout of lmperf, or -C")
        if path.exists():
            raise UserError(f"{path}: is there already; give the benchmark another name")
    for path, text in files.items():
        path.write_text(text.format(**named))
        print(path)


def _refuse_a_name_that_is_taken(name: str, class_name: str) -> None:
    """By another benchmark or, since a benchmark is a target of the workflow, by one of its rules;
    in Python, or by what its module imports."""
    workflow = [Path("Snakefile"), *Path("rules").glob("*.smk")]
    texts = [path.read_text() for path in workflow if path.is_file()]
    rules = {rule for text in texts for rule in re.findall(r"^(?:rule|.* as) (\w+)\b", text, re.M)}
    taken = [*stems(), *sorted(rules)]
    imported = re.search(rf"\b{class_name}\b", _BENCHMARK.partition("class ")[0])
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]{,63}", name)
        or name in taken
        or keyword.iskeyword(class_name)
        or imported
    ):
        raise UserError(
            f"{name!r} can be no new benchmark; it must be a word of a-z, 0-9 and _ that begins"
            f" with a letter, means nothing in Python, and is none of these: {', '.join(taken)}"
        )
