"""`lmperf new`: write the two files of a new benchmark."""

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
    order = 45  # position of its section: after Attention (40)
    axes = (Axis("seq_len", int),)
    implementations = (Implementation("eager"),)
    grids = dict.fromkeys(
        ("cpu", "gpu"), [{{"seq_len": [1024, 4096], "implementation": ["eager"]}}]
    )

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        import torch  # not at the top: the workflow imports this module without torch

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


@click.command(short_help="Write the two files of a new benchmark.")
@click.argument("name")
def new(name: str):
    """Write the module and the template of a benchmark NAME. It runs as written: it times softmax.

    \b
    Example:
      lmperf new softmax
    """
    words = name.replace("_", " ")
    named = {"name": words.title().replace(" ", ""), "title": words.capitalize(), "words": words}
    _require_valid_name(name, named["name"])
    files = {
        Path(f"src/lmperf/benchmarks/{name}.py"): _BENCHMARK,
        Path(f"templates/sections/{name}.md.j2"): _TEMPLATE,
    }
    for path in files:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} does not exist; change into a checkout, or use -C DIR")
        if path.exists():
            raise UserError(f"{path} already exists; choose another name")
    for path, text in files.items():
        path.write_text(text.format(**named))
        print(path)


def _require_valid_name(name: str, class_name: str) -> None:
    """Raise UserError unless a benchmark, its module and its class can have these names.

    Names of benchmarks, of the workflow's rules (each benchmark becomes a rule) and of imports in
    the new module are in use already.
    """
    workflow = [Path("Snakefile"), *Path("rules").glob("*.smk")]
    texts = [path.read_text() for path in workflow if path.is_file()]
    rules = {rule for text in texts for rule in re.findall(r"^rule (\w+):", text, re.M)}
    imported = re.search(rf"\b{class_name}\b", _BENCHMARK.partition("class ")[0])
    if name in (taken := [*stems(), *sorted(rules)]):
        raise UserError(f"{name} is taken; choose a name other than {', '.join(taken)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]{,63}", name) or keyword.iskeyword(class_name) or imported:
        raise UserError(
            f"{name!r} is not a valid name for a benchmark; use a-z, 0-9 and _, begin with a"
            " letter, and avoid names of Python and of lmperf.benchmark"
        )
