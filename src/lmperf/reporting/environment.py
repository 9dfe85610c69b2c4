"""The Jinja environment of templates and claims: sandboxed, strict, with our filters."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from lmperf.reporting import numbers
from lmperf.reporting.tables import escaped


@cache
def environment(templates: Path) -> SandboxedEnvironment:
    """An environment that loads from ``templates``; an undefined name is an error."""
    made = SandboxedEnvironment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_plain,
    )
    made.filters |= {
        "sig": numbers.significant,
        "percent": numbers.percent,
        "signed_percent": numbers.signed_percent,
        "rounded": numbers.rounded,
        "ratio": numbers.ratio,
        "fixed": numbers.fixed,
        "error": numbers.error,
        "gib": numbers.gib,
        "listed": lambda values: numbers.listed(_plain(value) for value in values),
        "numerics": numbers.dtype_words,
        "phase": numbers.phase_words,
        "implementation": numbers.implementation_words,
        "escaped": escaped,
    }
    return made


def _plain(value):
    return f"{value:.12g}" if isinstance(value, float) else value
