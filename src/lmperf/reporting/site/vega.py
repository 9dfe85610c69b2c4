"""The JavaScript of the interactive figures, from the optional package `vl-convert-python`."""

from __future__ import annotations

import importlib.util
import json

from lmperf.reporting.figures import THEMES

FILE, COLOURS = "vega.js", "colours.js"
PACKAGE = "vl_convert"


def is_installed() -> bool:
    """Whether the package that holds Vega-Lite is there (`pip install 'lmperf[site]'`)."""
    return importlib.util.find_spec(PACKAGE) is not None


def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which needs no network."""
    import vl_convert

    return vl_convert.javascript_bundle()


def colours() -> str:
    """A script with the colours of both themes: those of the static figures."""
    themes = {
        theme.name: {**theme.colours, "ink": theme.ink, "paper": theme.background}
        for theme in THEMES
    }
    return f"const COLOURS = {json.dumps(themes)};\n"
