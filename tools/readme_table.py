"""Copy the first table of the published report, and its signs, into README.md between two comments.

python tools/readme_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from lmperf.reporting.cells import SIGNS

README = Path(__file__).parents[1] / "README.md"
_PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def updated(readme: str, root: Path) -> str:
    """Return the text of README.md with the table of the report that its comment names.

    Raises:
        ValueError: README.md has no such comments, or the report has no table.
    """
    found = _PLACE.search(readme)
    if found is None:
        raise ValueError("README.md has no place for the table")
    report = root / found[2]
    first = re.search(r"((?:^\|.*\n)+)\n(.*)\n", report.read_text(), re.MULTILINE)
    if first is None:
        raise ValueError(f"{report} has no table")
    table = _with_links_from(first[1], Path(found[2]).parent)
    known = "".join(sign for sign, _ in SIGNS.values())
    if signs := re.search(rf"[{known}] .*", first[2]):  # the end of its note
        table += f"\n{signs[0]}\n"
    return readme[: found.end(1)] + f"\n{table}\n" + readme[found.start(3) :]


def _with_links_from(table: str, folder: Path) -> str:
    """The table with its relative links as seen from the root of the project."""
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({folder.as_posix()}/", table)


if __name__ == "__main__":
    README.write_text(updated(README.read_text(), README.parent))
