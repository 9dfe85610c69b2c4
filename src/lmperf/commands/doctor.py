"""`lmperf doctor`: print what is missing to measure each section, and how to install it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from lmperf.benchmarks import load, stems
from lmperf.commands.options import of_project
from lmperf.errors import UserError
from lmperf.evidence.project import Project
from lmperf.machine.software import torch_version, version_of
from lmperf.measuring import processors
from lmperf.own.check import problem_of

HERE, ABSENT, WRONG = "ok", "absent", "wrong"
# The state of a requirement, and what was found or how to install it.
Requirement = tuple[str, str]


@click.command(short_help="Show what is missing to measure, and how to install it.")
@of_project
def doctor(project: Project) -> int:
    """List the software that was found, which benchmarks can be measured, and what to do for the
    others. The exit code is 1 if something that the configuration asks for cannot work.

    \b
    Example:
      lmperf doctor
    """
    requirements = [*_software(project), *_sections(project)]
    for state, words in requirements:
        print(f"{state:<7} {words}")
    return 1 if any(state == WRONG for state, _ in requirements) else 0


def _software(project: Project) -> Iterator[Requirement]:
    version, kind = torch_version(), project.machine.kind
    if version is None:
        yield WRONG, "torch: measuring needs it, 2.11 or newer; install lmperf[measure]"
        return
    device = project.machine.facts["device"]
    yield HERE, f"torch {version} on {kind}: {device}"
    usable, host = processors.usable(), os.cpu_count()
    why = "a CPU quota" if usable < processors.affinity() else "its affinity"
    less = f" of {host}, as {why} says" if usable != host else ""
    yield HERE, f"CPU cores that this process may use: {usable:g}{less}"
    if kind != "cuda":
        yield ABSENT, "CUDA device: the preset gpu needs one, its driver and a CUDA build of torch"
    if triton := version_of("triton"):
        yield HERE, f"Triton {triton}" + (", interpreted (no GPU)" if kind != "cuda" else "")
    else:
        yield ABSENT, "Triton: the kernels and their tests need it; pip install triton"
    compilers = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    compiler = next((path for name in compilers if name and (path := shutil.which(name))), None)
    if compiler:
        yield HERE, f"C++ compiler {compiler}"
    elif kind == "cpu":
        yield ABSENT, "C++ compiler: torch.compile needs one on a CPU; install g++"
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir()).absolute()
    existing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if os.statvfs(existing).f_flag & getattr(os, "ST_NOEXEC", 0):
        words = f"{existing}: compiled code cannot be executed in it (mounted with noexec)"
        yield WRONG, f"{words}; set TORCHINDUCTOR_CACHE_DIR, or TMPDIR, to another folder"
    if shutil.which("git"):
        yield HERE, "git"
    else:
        yield ABSENT, "git: rows record no commit; install git, or set LMPERF_COMMIT"


def _sections(project: Project) -> Iterator[Requirement]:
    asked = project.stems
    for stem in stems():
        benchmark = load(stem)
        if stem in asked and project.can_measure:
            yield from _planned(project, stem)
        elif stem in asked:
            yield ABSENT, f"{stem}: needs torch"
        elif benchmark.grids_of(project.preset):
            yield ABSENT, f"{stem}: not in the configuration; add it to benchmarks"
        else:
            presets = " or ".join(benchmark.grids)
            yield ABSENT, f"{stem}: has cells only for the preset {presets}"


def _planned(project: Project, stem: str) -> Iterator[Requirement]:
    """What would be measured, and for each custom implementation whether it can be called."""
    try:
        plan = project.plan(stem)
    except UserError as error:
        yield WRONG, str(error)
        return
    yield HERE, f"{stem}: {len(plan.cases)} case{'s' * (len(plan.cases) != 1)}"
    benchmark = plan.benchmark
    takes, limit_s = benchmark.takes and benchmark.takes.name, benchmark.limit_s
    for name, brought in benchmark.external.items():
        problem = problem_of(brought.entry, takes, limit_s=limit_s, options=brought.options)
        yield WRONG if problem else HERE, f"{stem}, {name}: {problem or brought.entry}"
