"""Options and arguments that several commands share, and the project that commands work on."""

from __future__ import annotations

import functools
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import click

from lmperf.benchmarks import stems
from lmperf.config.model import Config
from lmperf.config.read import config_of, load_config, overrides_of
from lmperf.errors import UserError, meant
from lmperf.evidence.facts import FILE
from lmperf.evidence.project import Project
from lmperf.evidence.wanted import Wanted
from lmperf.workflow import TEMPLATES

CONFIG = Path("config/config.yaml")


@dataclass(frozen=True)
class Settings:
    """The options of `lmperf` itself: the configuration file, and `KEY=VALUE` overrides."""

    configfile: Path
    overrides: Sequence[str]

    def config(self, more: Sequence[str] = (), needs_file: bool = True) -> Config:
        """Load the configuration.

        more: further `KEY=VALUE` overrides. needs_file: whether `config/config.yaml` must exist;
            without it each key has its default.
        """
        overrides = overrides_of([*self.overrides, *more])
        if self.configfile != CONFIG or CONFIG.exists():
            return load_config(self.configfile, overrides)
        if needs_file:
            raise UserError(
                f"{CONFIG} does not exist; change into a repository that has it (-C DIR), or run"
                " lmperf init in yours"
            )
        return config_of({}, CONFIG, overrides)


config_option = click.option(
    "--config",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a configuration key: grid.attention.seq_len=[256,512]. Repeat for more.",
)


def of_project(command: Callable) -> Callable:
    """A decorator that passes the project to a command, and lets `--config` follow its name."""

    @config_option
    @click.pass_obj
    @functools.wraps(command)
    def called(settings: Settings, /, overrides: Sequence[str], **options):
        return command(Project(settings.config(overrides)), **options)

    return called


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs in `seq_len=256,512,dtype=float32`.

    A part without an axis is one more value of the axis before it.
    """
    pairs, axis = [], ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        axis, value = (name.strip(), value) if equals else (axis, part)
        if not axis or not value.strip():
            raise click.BadParameter(f"must be AXIS=VALUE,..., not {text}")
        pairs.append((axis, value.strip()))
    return pairs


def _names(context, param, given: str | None) -> list[str]:
    return [name.strip() for name in given.split(",")] if given is not None else []


def _stem(context, param, incomplete: str) -> list[str]:
    return [stem for stem in stems() if stem.startswith(incomplete)]


def _known(stem: str) -> str:
    if stem not in stems():
        raise UserError(f"unknown benchmark {stem}; {meant(stem, stems())}")
    return stem


def say(words: str) -> None:
    """Print a message to the user on stderr."""
    print(f"lmperf: {words}", file=sys.stderr)


def print_tables(text: str) -> None:
    """Print tables for a terminal, then a message if they are wider than this terminal."""
    print(text, end="" if text.endswith("\n") else "\n")
    rules = re.findall(r"^-[- ]*$", text, re.MULTILINE)  # the line below the headers
    widest, columns = max(map(len, rules), default=0), shutil.get_terminal_size().columns
    if sys.stdout and sys.stdout.isatty() and widest > columns:
        say(f"tables are up to {widest} columns wide, this terminal {columns}: pipe into less -S")


def scaffold(name: str) -> Template:
    """Return the text of a file from which `init` and `new` make one."""
    return Template((TEMPLATES / "scaffold" / name).read_text(encoding="utf-8"))


force_option = click.option(
    "--force", is_flag=True, help="Replace files of yours that are in the way, and name them."
)


def say_replaced(paths: Iterable[Path]) -> None:
    """Name the files that `--force` replaced."""
    for path in paths:
        say(f"replaced {path}")


def say_misnamed(project: Project) -> None:
    """Name folders whose evidence no command shows."""
    for folder in project.misnamed():
        say(
            f"{folder} is not shown: rename it, and the machine in its {FILE}, to a name of a-z,"
            " 0-9, - and _"
        )


# A percentage from `statistics.LEAST_FLOOR` on: no verdict rests on a smaller difference.
PERCENT = click.FloatRange(1, 100, max_open=True)


def stem_argument(type: Callable | None = _known, **how) -> Callable:
    """A decorator that adds an argument for a benchmark's stem (name), with shell completion."""
    return click.argument("stem", type=type, shell_complete=_stem, **how)


only_option = click.option(
    "--only",
    type=_pairs,
    multiple=True,
    metavar="AXIS=VALUE,...",
    callback=lambda context, param, given: [pair for pairs in given for pair in pairs],
    help="Only cells with these values: seq_len=512,1024,dtype=bfloat16. Repeatable.",
)


def wanted_options(command: Callable) -> Callable:
    """A decorator that adds --only, --implementations and --phases, and passes them as `wanted`."""

    @only_option
    @click.option(
        "--implementations",
        metavar="NAME,...",
        callback=_names,
        help="Only these implementations.",
    )
    @click.option("--phases", metavar="NAME,...", callback=_names, help="Only these phases.")
    @functools.wraps(command)
    def called(*given, only, implementations, phases, **options):
        return command(*given, wanted=Wanted(only, implementations, phases), **options)

    return called
