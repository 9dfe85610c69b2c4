"""`UserError`, the exception for bad input, and one line for every other exception."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import reprlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

# Exit code of a command that a fault of lmperf ended.
FAULT = 70
# File in `.lmperf/` to which the tracebacks of unexpected exceptions are appended.
TRACEBACKS = "tracebacks.txt"

_NOT_USER_CODE = ("<", sysconfig.get_path("stdlib"))
_LMPERF = Path(__file__).parent
# A frame in a traceback that a message quotes, as torch.compile and autograd's anomaly mode do.
_QUOTED = re.compile(r'File "([^"\n]+)", line (\d+)')
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class UserError(Exception):
    """Raised for bad input; the message is one line: what is wrong, where, and what to do.

    The command line prints the message and exits with code 2. Unprintable characters, which could
    break the line or control a terminal, are replaced by their escapes.
    """

    def __init__(self, message: str):
        super().__init__(_printable(message))


class Interrupted(KeyboardInterrupt):
    """Raised in a worker that is being ended, so that it cleans up."""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str, limit: int = 240) -> str:
    """Return a text as one line of `limit` characters at most, unprintable ones as `\\x1b`."""
    line = _printable(" ".join(text[: 8 * limit].split())[: 2 * limit])
    return line if len(line) <= limit else line[: limit - 3] + "..."


def meant(name: object, known: Iterable[object], label: str = "choose one of:") -> str:
    """Return `did you mean X?` if a known name X is near, else `label` and all known names.

    No name is near to one with fewer than three letters, as 4096 or F2.
    """
    names = {text.lower(): text for text in map(str, known)}
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

    The file and line are the innermost ones of the user's code in the traceback, else in the
    exception's message and notes, else of lmperf in the traceback.
    """
    text = " ".join(f"{type(error).__name__}: {message_of(error)[:4000]}".split())
    text = _printable(text.removesuffix(":"))
    place = user_line(error) or _innermost(_frames(error), lambda path: "-packages" not in path)
    return f"{text[:600]}{f' ({place})'[:100] if place else ''}"


def message_of(error: BaseException) -> str:
    """The message of an exception, without the place that a SyntaxError adds to it."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception as fault:  # of a foreign `__str__`
        return f"its message cannot be read ({type(fault).__name__} in __str__)"


def user_line(error: BaseException) -> str:
    """Return file and line of the user's code that an exception came from; "" if of none.

    Where no frame is of the user's code, as in a compiled call or a backward pass, the message and
    the notes of the exception may quote a traceback that has one.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_relative(error.filename)}:{error.lineno}"
    quoted = "\n".join([message_of(error), *getattr(error, "__notes__", ())])
    return _innermost(_frames(error), _is_users) or _innermost(_QUOTED.findall(quoted), _is_users)


def trace_of(error: BaseException) -> str:
    """The traceback of an exception; a message of megabytes is cut."""
    return "".join(traceback.format_exception(error))[:100_000]


def kept(trace: str) -> str:
    """Append a traceback to a file below the current folder, else to one in the temporary folder.

    Returns `; traceback: FILE`, to follow a message; "" if neither can be written.
    """
    head = f"# {datetime.now(UTC).isoformat(timespec='seconds')} {' '.join(sys.argv)}\n"
    for folder in (Path(".lmperf"), Path(os.environ.get("TMPDIR") or "/tmp", "lmperf")):
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            with (folder / TRACEBACKS).open("a", errors="backslashreplace") as file:
                file.write(f"{head}{trace}\n")
            return f"; traceback: {(folder / TRACEBACKS).resolve()}"
    return ""


def explained(error: Exception) -> tuple[str, int]:
    """Return one line for an exception that ends a command, and the command's exit code.

    The traceback of an exception that is not expected is kept in a file, which the line names.
    """
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, OSError) and error.strerror:  # of the machine rather than of the code
        return str(UserError(f"{error.filename or 'the system'}: {error.strerror}")), 2
    is_users = bool(user_line(error))
    blame = "" if is_users else "this is a fault of lmperf, please report it: "
    words = f"{blame}{described(error)}{kept(trace_of(error))}"
    return str(UserError(words)), 2 if is_users else FAULT


def _frames(error: BaseException) -> list[tuple[str, str | int]]:
    return [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]


def _innermost(lines: Iterable[tuple[str, str | int]], wanted: Callable[[str], bool]) -> str:
    places = [line for line in lines if not line[0].startswith(_NOT_USER_CODE) and wanted(line[0])]
    return f"{_relative(places[-1][0])}:{places[-1][1]}" if places else ""


def _is_users(path: str) -> bool:
    return "-packages" not in path and not Path(path).is_relative_to(_LMPERF)


def _relative(filename: str) -> str:
    path = Path(filename)
    with contextlib.suppress(OSError):  # the current folder may have been removed
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
    return filename
