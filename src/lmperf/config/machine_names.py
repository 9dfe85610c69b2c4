"""Names of machines, which are also names of folders in `report/`."""

from __future__ import annotations

import re

from lmperf.errors import UserError, shown

PATTERN = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$"
LONGEST = 64


def is_slug(text: str) -> bool:
    """Whether a text is a valid machine name, which is also a folder name in `report/`."""
    # `report/` holds the overview, `report.md`, beside the folders of the machines.
    is_page = text.endswith(".md")
    return not is_page and len(text) <= LONGEST and bool(re.fullmatch(PATTERN[1:-1], text))


def check_slug(text: str) -> str:
    """Return a text that is a valid machine name.

    Raises:
        ValueError: it is not; the message says what would be.
    """
    if not is_slug(text):
        raise ValueError(
            f"is {shown(text)}; it must be a name of a-z, 0-9, - and _, with single dots between"
            f" them, of at most {LONGEST} characters, not ending in .md"
        )
    return text


def slug(text: str) -> str:
    """Return a machine name from the command line after a check that it is valid.

    Raises:
        UserError: the text is not a valid name, for example because it is a path.
    """
    try:
        return check_slug(text)
    except ValueError as error:
        raise UserError(f"MACHINE {error}") from None
