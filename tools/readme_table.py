"""Copy the first table of the published report, and its signs, into README.md between two comments,
and the sentence on one of its lines between two others.

python tools/readme_table.py
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from lmperf.reporting.cells import SIGNS

README = Path(__file__).parents[1] / "README.md"
RESULT = (
    "On one NVIDIA H200, a train step of {size} parameters on 4 sequences of 1,024 tokens takes"
    " {fused, graph, bf16 copies (ms)} ms with lmperf ({tokens/s} tokens/s, {MFU (%)} % MFU),"
    " {SDPA, compiled, graph (ms)} with PyTorch's attention and AdamW, and"
    " {SDPA, compiled, graph, bf16 copies (ms)} with PyTorch's attention and lmperf's AdamW. All"
    " train float32 weights in bf16 autocast, compiled, in one CUDA graph, and were checked against"
    " float64."
)
_RESULT_PLACE = re.compile(r"(<!-- result: .*\((.+)\) -->\n).*?(<!-- end of result -->)", re.DOTALL)
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
    readme = readme[: found.end(1)] + f"\n{table}\n" + readme[found.start(3) :]
    return _RESULT_PLACE.sub(
        lambda place: place[1] + _result(place[2], first[1]) + place[3], readme
    )


def _result(size: str, table: str) -> str:
    """The sentence on the line of a size of the first table."""
    header, _, *lines = (
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines()
    )
    values = next(
        dict(zip(header, line, strict=True)) for line in lines if line[0].endswith(f"({size})")
    )
    words = {name: value.split(" (")[0] for name, value in values.items()} | {"size": size}
    sentence = re.sub(r"{(.+?)}", lambda name: words[name[1]], RESULT)
    return textwrap.fill(sentence, 120) + "\n"


def _with_links_from(table: str, folder: Path) -> str:
    """The table with its relative links as seen from the root of the project."""
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({folder.as_posix()}/", table)


if __name__ == "__main__":
    README.write_text(updated(README.read_text(), README.parent))
