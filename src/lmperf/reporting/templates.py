"""The sandboxed Jinja environment for templates and findings, with the filters of lmperf."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from lmperf import names
from lmperf.reporting import numbers
from lmperf.reporting.foreign import code, escaped

FORMS = {
    "sig": numbers.significant,
    "percent": numbers.percent,
    "signed_percent": numbers.signed_percent,
    "ratio": numbers.ratio,
    "rounded": numbers.rounded,
    "error": numbers.error,
    "gib": numbers.gib,
}


@cache
def load_templates(templates: Path | None = None) -> SandboxedEnvironment:
    """The Jinja environment for a folder of templates; None: for templates from strings only."""
    made = SandboxedEnvironment(
        loader=FileSystemLoader(templates) if templates else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_plain,
    )
    made.filters |= {
        **FORMS,
        "fixed": numbers.fixed,
        "range": lambda spread, form="sig": numbers.ranged(spread, FORMS[form]),
        "thousands": "{:,.0f}".format,
        "count": numbers.counted,
        "plural": numbers.plural,
        "listed": numbers.listed,
        "numerics": names.dtype_words,
        "phase": names.phase_words,
        "implementation": names.implementation_words,
        "escaped": escaped,
        "code": code,
    }
    return made


def _plain(value):
    return f"{value:.12g}" if isinstance(value, float) else value
