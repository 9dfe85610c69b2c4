"""Tests of the commands and links in README.md, CONTRIBUTING.md, CHANGELOG.md and docs/.

`tests/test_readme.py` runs the commands of the sections in `RUN`. Every other command must parse:
a renamed option, command or `make` target fails here. A command that needs something that a test
lacks says so in its comment: `# on an H200`, `# needs two GPUs`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from lmperf import cli
from lmperf.names import STATUSES
from lmperf.reporting.results import NOT_COMPARED, SIGNS
from lmperf.reporting.tables import TO_MEASURE

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_CODE = re.compile(r"```.*?```", re.DOTALL)
_WORDS = ("lmperf", "make")


def commands() -> list:
    """Every command line in a code block of a page, without the path of the environment."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^    (.*\S)$", text, re.MULTILINE):
            line = line.removeprefix(".venv/bin/")
            for part in line.split(" && "):
                if part.startswith(tuple(f"{word} " for word in _WORDS)):
                    found.append(pytest.param(part, id=f"{page.name}: {part[:50]}"))
    return found


def parsed(line: str) -> click.Context:
    """The context of the command that a line calls; raises click's error if it does not parse."""
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index(">")] if ">" in words else words
    at = next(place for place, word in enumerate(words) if word in cli.lmperf.commands)
    return cli.lmperf.commands[words[at]].make_context(words[at], words[at + 1 :])


@pytest.mark.parametrize("line", commands())
def test_documented_command_parses(line):
    program, *words = shlex.split(line, comments=True)
    if program == "lmperf":
        parsed(line)
    else:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words if "=" not in word} <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    text = _CODE.sub("", page.read_text())
    links = re.findall(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"', text)
    for link in filter(None, (one or other for one, other in links)):
        path, _, heading = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue  # on the web
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if heading:
            assert heading in headings(target), link


def test_every_sign_and_word_of_a_cell_is_explained():
    lines = (ROOT / "docs/reading-a-report.md").read_text().splitlines()
    explained = [line.split(" | ")[0].removeprefix("| ") for line in lines if line[:2] == "| "]
    assert {sign for sign, _ in SIGNS.values()} <= {words[0] for words in explained}
    named = {one for words in explained for one in words.split(", ")}
    states = {*STATUSES} - {"ok", "oom", "failed_check"}
    words = {STATUSES[state] for state in states} | {"OOM", "withheld", TO_MEASURE}
    assert words | {NOT_COMPARED.replace("_", " ")} <= named


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    names = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def test_pages_name_no_file_that_is_missing_from_git():
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True
    ).stdout.split()
    known = {*tracked, *(str(parent) for name in tracked for parent in Path(name).parents)}
    named = {
        match.rstrip("/")
        for page in PAGES
        for match in re.findall(
            r"`((?:src|tests|docs|tools|rules|envs|profiles)/[\w./-]+)`", page.read_text()
        )
    }
    # Two files of an example are the reader's to write.
    examples = {"src/lmperf/benchmarks/softmax.py", "templates/softmax.md.j2"}
    assert named - known <= examples
