"""`lmperf init`: set up the report in a repository that has its own kernels or models."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from lmperf import workflow
from lmperf.benchmarks import load, stems
from lmperf.commands.options import Choice, say
from lmperf.config_faults import ENTRY
from lmperf.errors import UserError, shown
from lmperf.evidence.machine import version_of
from lmperf.sources import find

# Kind of custom implementation -> what `Benchmark.takes` says of the benchmarks that measure it.
KINDS = {"attention": "attention", "lrpe": "lrpe", "model": "model", "train_step": "model"}
# A train step is measured in this benchmark only.
_OF_STEPS = "end_to_end"

CI = Path(".github/workflows/report.yml")
IGNORE = Path(".gitignore")
PROFILE = Path("profiles/default/profile.yaml")

_SNAKEFILE = '''\
"""The performance report of this repository, measured and written by lmperf.

    snakemake --cores 1 report/report.md    measure what is due here, and write it up
    lmperf list                             show what is due, and why

config/config.yaml says what to measure.
"""

import lmperf.workflow


include: lmperf.workflow.SNAKEFILE
'''
_CONFIG = """\
# What to measure. Every key is optional; `lmperf schema` prints their JSON schema, for editors.

# auto (gpu if there is a CUDA device, else cpu), cpu, gpu; quick: only the cells of the write-up's
# own tables, in minutes.
preset: auto
benchmarks: all # or a list: [attention, flash_attention]

# Values that replace those of the preset's axes.
grid: {{}}
#  attention: {{ seq_len: [256, 512] }}

# Your implementations, by benchmark and name: "package.module:function". An implementation that
# rounds more than its dtype requires declares it: {{ use: "...", tolerance: rounded_scores }}.
implementations:{implementations}
"""
_EXAMPLE = ' {}\n#  flash_attention: { mine: "package.module:function" }'
_IGNORED = (
    *("/.lmperf/", "/.snakemake/", "/logs/", "/site/", "__pycache__/"),
    *("/report/*/store/", "/report/*/traces/", "*.damaged"),
)


def _entry_option(kind: str):
    option = f"--{kind.replace('_', '-')}"
    return click.option(option, kind, metavar="MODULE:NAME", help=f"Your {option[2:]}.")


@click.command(short_help="Set up the report in your own repository.")
@_entry_option("attention")
@_entry_option("lrpe")
@_entry_option("model")
@_entry_option("train_step")
def init(**given: str | None):
    """Write the files with which this Git repository measures and reports its own implementations:
    a Snakefile that includes the workflow of lmperf, Snakemake's settings for it, a configuration,
    .gitignore, and a file for continuous integration. Existing files stay as they are.

    Without an option, a question asks for an implementation.

    \b
    Example:
      lmperf init --attention my_package.attention:FlashAttention
    """
    if not Path(".git").exists():
        raise UserError(f"{Path.cwd()} is not the top of a Git repository; run git init there")
    files = {
        Path("Snakefile"): _SNAKEFILE,
        Path("config/config.yaml"): "",
        PROFILE: (workflow.FOLDER / PROFILE).read_text(),
        CI: _ci(),
    }
    if there := [str(path) for path in files if path.exists()]:
        raise UserError(f"{', '.join(there)} exists already, and init overwrites nothing")
    entries = {kind: entry for kind, entry in given.items() if entry} or _asked()
    for entry in entries.values():
        _require_module(entry)
    files[Path("config/config.yaml")] = _config(entries)
    if not _ignores():
        files[IGNORE] = "\n".join(_IGNORED) + "\n"
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
    say("next: snakemake --cores 1 report/report.md --config preset=quick")


def _ignores() -> bool:
    """Whether there is a .gitignore; then print the lines that it lacks."""
    if not IGNORE.exists():
        return False
    there = IGNORE.read_text().splitlines()
    if lacking := [line for line in _IGNORED if line not in there]:
        say(f"{IGNORE} exists and stays as it is; add these lines to it: {' '.join(lacking)}")
    return True


def _asked() -> Mapping[str, str]:
    """Ask for one implementation and its kind; none without a terminal, or with an empty answer."""
    if not sys.stdin.isatty():
        return {}
    entry = click.prompt("Your implementation, as package.module:name (Enter for none)", default="")
    if not entry:
        return {}
    _require_module(entry)
    return {click.prompt("It is", type=Choice([*KINDS]), default="attention"): entry}


def _require_module(entry: str) -> None:
    if not re.fullmatch(ENTRY, entry):
        raise UserError(f"{shown(entry)} must be a name in a module: package.module:name")
    module = entry.partition(":")[0]
    if find(module) is None:
        raise UserError(f"there is no module {module}; install it, or put it below {Path.cwd()}")


def _config(entries: Mapping[str, str]) -> str:
    lines = {}
    for kind, entry in entries.items():
        taking = [stem for stem in stems() if load(stem).takes == KINDS[kind]]
        for stem in [_OF_STEPS] if kind == "train_step" else taking:
            name = "my_step" if kind == "train_step" else "mine"
            lines.setdefault(stem, []).append(f'{name}: "{entry}"')
    listed = "".join(f"\n  {stem}: {{ {', '.join(names)} }}" for stem, names in lines.items())
    return _CONFIG.format(implementations=listed or _EXAMPLE)


def _ci() -> str:
    """The file for continuous integration of lmperf itself, with another command that installs."""
    text = (workflow.FOLDER / CI).read_text()
    package = f"lmperf=={version_of('lmperf')}"
    return re.sub(r"(?m)^( +run:) pip install .*$", rf"\1 pip install {package}", text)
