"""`lmperf run --against`: the command under a table, executed with evidence of this machine."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.process


TEMPLATES = Path(__file__).parents[2] / "templates"
VERDICT = r"reproduced within|differs by|cannot be judged: (marked|unresolved)"


def test_command_below_a_table_measures_its_cell_again(folder, lmperf):
    assert lmperf("measure", "flash_attention")[0] == 0
    shutil.copytree(TEMPLATES, folder / "templates")
    assert lmperf("report")[0] == 0
    page = (folder / "report/here/flash_attention.md").read_text()
    line = re.search(r"^Reproduce a cell: `lmperf (.*)`$", page, re.MULTILINE)[1]
    evidence = folder / "report/here/evidence/flash_attention.csv"
    before = evidence.read_bytes()
    code, out, said = lmperf(*shlex.split(line))
    assert code in (0, 1), said
    cell, phase = re.search(r"--only (\S+) .*--phases (\S+) ", line).groups()
    assert re.search(rf"^Against here: {cell.replace(',', ', ')}, \w+, {phase}$", out, re.MULTILINE)
    verdict = out.splitlines()[-1]
    assert re.search(VERDICT, verdict)
    assert (code == 0) == ("reproduced within" in verdict)
    assert evidence.read_bytes() == before

    outside = ("--only", "seq_len=33", "--implementations", "sdpa", "--phases", "forward")
    code, out, said = lmperf("run", "flash_attention", *outside, "--against", "here")
    assert code == 1, said
    assert "cannot be judged: here has no such row" in out
    assert "outside the grid of the report: 1 of 1 cases" in said

    links_exist(folder / "report/report.md")


def links_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "elsewhere"], "no evidence of machine elsewhere; there is of: none"),
        (["--against", "../x"], "MACHINE is '../x'; it must be a name"),
        (["--against", "here", "--keep"], "leave --keep out"),
    ],
)
def test_invalid_machine_prints_one_line_and_exits_with_2(lmperf, arguments, words):
    code, out, said = lmperf("run", "flash_attention", *arguments)
    assert (code, out, said.count("\n")) == (2, "", 1), said
    assert words in said
