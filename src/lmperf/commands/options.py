"""What commands have in common: the project that they are about, and how options are read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from lmperf.benchmarks import stems
from lmperf.config import load_config, overrides_of, slug
from lmperf.errors import UserError
from lmperf.evidence.plan import Project

CONFIG = Path("config/config.yaml")


@dataclass(frozen=True)
class Settings:
    """What stands before the command: the file of the configuration, and keys that replace its."""

    configfile: Path
    overrides: Sequence[str]

    def project(self, more: Sequence[str]) -> Project:
        """The project that the configuration and further `KEY=VALUE` describe."""
        if self.configfile == CONFIG and not CONFIG.exists():
            raise UserError(
                f"{CONFIG} is not here; change into a checkout of lmperf, or use -C DIR"
            )
        return Project(load_config(self.configfile, overrides_of([*self.overrides, *more])))


def config_option(name: str = "overrides") -> Callable:
    return click.option(
        "--config",
        name,
        multiple=True,
        metavar="KEY=VALUE",
        help="A key of the configuration, as in grid.attention.seq_len=[256,512]; again for more.",
    )


def of_project(command: Callable) -> Callable:
    """A command whose first argument is the project; it has `--config` behind its name as well."""

    @config_option()
    @click.pass_obj
    @functools.wraps(command)
    def called(settings: Settings, /, overrides: Sequence[str], **options):
        return command(settings.project(overrides), **options)

    return called


class _Read(click.ParamType):
    """A word that a function reads; what that refuses is said as it says it."""

    def __init__(self, name: str, read: Callable):
        self.name, self._read = name, read

    def convert(self, value, param, context):
        return value if not isinstance(value, str) else self._read(value)


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and equals and value for name, equals, value in pairs):
        raise click.BadParameter(f"must be AXIS=VALUE,..., is {text}")
    return [(name.strip(), one.strip()) for name, _, value in pairs for one in value.split("|")]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _stem(context, param, incomplete: str) -> list[str]:
    return [stem for stem in stems() if stem.startswith(incomplete)]


def _known(stem: str) -> str:
    if stem not in stems():
        raise UserError(f"there is no benchmark {stem}; there are: {', '.join(stems())}")
    return stem


def say(words: str) -> None:
    """A line to a person, beside what a command prints."""
    print(f"lmperf: {words}", file=sys.stderr)


MACHINE, BENCHMARK = _Read("MACHINE", slug), _Read("STEM", _known)
PERCENT = click.FloatRange(0, 100, max_open=True)


def stem_argument(type: click.ParamType | None = BENCHMARK, **how) -> Callable:
    """A benchmark, which a shell can complete."""
    return click.argument("stem", metavar="STEM", type=type, shell_complete=_stem, **how)


def only_option(command: Callable) -> Callable:
    return click.option(
        "--only",
        type=_Read("AXIS=VALUE,...", _pairs),
        multiple=True,
        callback=lambda context, param, given: [pair for pairs in given for pair in pairs],
        help="Cells of these values; one of several by | or by the same axis again.",
    )(command)


def _listed(name: str, words: str) -> Callable:
    return click.option(name, type=_Read("NAME,...", _names), default=(), help=words)


implementations_option = _listed("--implementations", "Those alone.")
phases_option = _listed("--phases", "Those alone.")
