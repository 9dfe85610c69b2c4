"""`lmperf doctor`: print what is missing to measure each section, and how to install it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import click

from lmperf.benchmarks import load, stems
from lmperf.commands.options import of_project
from lmperf.custom import broken_ones
from lmperf.errors import UserError
from lmperf.evidence.machine import torch_version, version_of
from lmperf.evidence.project import Project

HERE, ABSENT, WRONG = "ok", "absent", "wrong"


@dataclass(frozen=True)
class Found:
    """A requirement that `doctor` checked: its state, and what was found or how to install it."""

    state: str
    words: str


@click.command(short_help="Show what is missing to measure, and how to install it.")
@of_project
def doctor(project: Project) -> int:
    """List the software that was found, which benchmarks can be measured, and what to do for the
    others. The exit code is 1 if something that the configuration asks for cannot work.

    \b
    Example:
      lmperf doctor
    """
    found = [*_software(project), *_sections(project)]
    for one in found:
        print(f"{one.state:<7} {one.words}")
    return 1 if any(one.state == WRONG for one in found) else 0


def _software(project: Project) -> Iterator[Found]:
    version, kind = torch_version(), project.machine.kind
    if version is None:
        yield Found(WRONG, "torch: measuring needs it; pip install -e '.[measure]'")
        return
    device = project.machine.facts["device"]
    yield Found(HERE, f"torch {version} on {kind}: {device}")
    if kind != "cuda":
        yield Found(
            ABSENT, "CUDA device: the preset gpu needs one, its driver and a CUDA build of torch"
        )
    if triton := version_of("triton"):
        yield Found(HERE, f"Triton {triton}" + (", interpreted (no GPU)" if kind != "cuda" else ""))
    else:
        yield Found(ABSENT, "Triton: the kernels and their tests need it; pip install triton")
    compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    compiler = next((path for name in compilers if name and (path := shutil.which(name))), None)
    if compiler:
        yield Found(HERE, f"C++ compiler {compiler}")
    elif kind == "cpu":
        yield Found(ABSENT, "C++ compiler: torch.compile needs one on a CPU; install g++")
    if shutil.which("git"):
        yield Found(HERE, "git")
    else:
        yield Found(ABSENT, "git: rows record no commit; install git, or set LMPERF_COMMIT")
    if find_spec("snakemake") is None:
        yield Found(WRONG, "Snakemake: `make report` needs it; pip install snakemake")


def _sections(project: Project) -> Iterator[Found]:
    asked = project.stems
    for stem in stems():
        benchmark = load(stem)
        if stem in asked and project.can_measure:
            yield from _planned(project, stem)
        elif stem in asked:
            yield Found(ABSENT, f"{stem}: needs torch")
        elif benchmark.grids_of(project.preset):
            yield Found(ABSENT, f"{stem}: not in the configuration; add it to benchmarks")
        else:
            presets = " or ".join(benchmark.grids)
            yield Found(ABSENT, f"{stem}: has cells only for the preset {presets}")


def _planned(project: Project, stem: str) -> Iterator[Found]:
    """What would be measured, and for each custom implementation whether it can be called."""
    try:
        plan = project.plan(stem)
    except UserError as error:
        yield Found(WRONG, str(error))
        return
    yield Found(HERE, f"{stem}: {len(plan.cases)} case{'s' * (len(plan.cases) != 1)}")
    broken = broken_ones(plan.benchmark)
    for name, one in plan.benchmark.external.items():
        words = broken.get(name) or one.entry
        yield Found(WRONG if name in broken else HERE, f"{stem}, {name}: {words}")
