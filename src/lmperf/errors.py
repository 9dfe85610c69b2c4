"""`UserError`, the exception for bad input, and one-line descriptions of other exceptions."""

from __future__ import annotations

import difflib
import reprlib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

_NOT_USER_CODE = ("<", sysconfig.get_path("stdlib"))
_LMPERF = Path(__file__).parent
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class UserError(Exception):
    """Raised for bad input; the message is one line: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2. Unprintable characters, which could
    break the line or control a terminal, are replaced by their escapes.
    """

    def __init__(self, message: str):
        super().__init__("".join(c if c.isprintable() else ascii(c)[1:-1] for c in message))


def meant(name: object, known: Iterable[object], label: str = "choose one of:") -> str:
    """Return `did you mean X?` if a known name X is near, else `label` and all known names.

    No name is near to one with fewer than three letters, as 4096 or F2.
    """
    names = {str(one).lower(): str(one) for one in known}
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.7)
    if near and sum(map(str.isalpha, str(name))) >= 3:
        return f"did you mean {names[near[0]]}?"
    return f"{label} {', '.join(names.values())}"


def shown(value: object) -> str:
    """Return a value as text for a message, spelled as in YAML, in at most 80 characters."""
    text = _SHORT.repr(value)
    text = {"None": "null", "True": "true", "False": "false"}.get(text, text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def described(error: BaseException) -> str:
    """Describe an exception in one line of at most 700 characters: type, message, file and line.

    The file and line are the innermost ones of the user's code in the traceback, else of lmperf.
    """
    message = error.msg if isinstance(error, SyntaxError) else error
    text = " ".join(f"{type(error).__name__}: {message}".split()).removesuffix(":")
    return f"{text[:600]}{_location_of(error)[:100]}"


def _location_of(error: BaseException) -> str:
    """The innermost line of the user's code in the traceback, else of lmperf; "" if of neither."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" ({_relative(error.filename)}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith(_NOT_USER_CODE)]
    frames = [frame for frame in frames if "-packages" not in frame.filename]
    users = [frame for frame in frames if not Path(frame.filename).is_relative_to(_LMPERF)]
    last = (users or frames or [None])[-1]
    return f" ({_relative(last.filename)}:{last.lineno})" if last else ""


def _relative(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
