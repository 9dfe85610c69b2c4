"""The one exception that a person is meant to read, and how others are said in its line."""

from __future__ import annotations

import reprlib
import sysconfig
import traceback
from pathlib import Path

_NOT_HERE = ("<", sysconfig.get_path("stdlib"))
_LMPERF = Path(__file__).parent
_BOUNDED = reprlib.Repr()
_BOUNDED.maxstring = _BOUNDED.maxother = 60


class UserError(Exception):
    """Bad input, said in one line: what is wrong, where, and what would be right.

    The command line prints the line and exits with code 2. Whatever text it quotes, it stays one
    line, and writes nothing to a terminal that is no letter: such characters stand as escapes.
    """

    def __init__(self, message: str):
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


def shown(value: object) -> str:
    """A value as a message quotes it: as YAML writes it; at most 80 characters."""
    text = _BOUNDED.repr(value)
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def described(error: BaseException) -> str:
    """An exception in a line of at most 300 characters: its type, its words, and file and line.

    The line is that of the code that runs here, not of a package in the environment below it.
    """
    words = error.msg if isinstance(error, SyntaxError) else _words_of(error)
    text = " ".join(f"{type(error).__name__}: {words}".split()).removesuffix(":")
    return f"{text[:200]}{_place_of(error)[:100]}"


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the user's own, which fails at saying what it is
        return ""


def _place_of(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({_near(error.filename)}:{error.lineno})"
    frame = innermost(error)
    return f" ({_near(frame.filename)}:{frame.lineno})" if frame else ""


def innermost(error: BaseException) -> traceback.FrameSummary | None:
    """Where an exception comes from: the innermost frame of a user's own code, else of lmperf's;
    None where all of it is Python's or a package's."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if not frame.filename.startswith(_NOT_HERE)]
    here = [frame for frame in here if "-packages" not in frame.filename]
    own = [frame for frame in here if not Path(frame.filename).is_relative_to(_LMPERF)]
    return (own or here or [None])[-1]


def _near(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
