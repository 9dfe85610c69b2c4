"""`lmperf run --against`: the command under a table, executed with evidence of this machine."""

import re
import shlex

import pytest

pytestmark = pytest.mark.process


@pytest.fixture
def measured(folder, lmperf):
    """The folder with the evidence of its small cells, and the command of its page's first table."""
    assert lmperf("measure", "flash_attention")[0] == 0
    return folder


def command_of_page(folder, lmperf, templates):
    (folder / "templates").symlink_to(templates)
    assert lmperf("report")[0] == 0
    page = (folder / "report/here/flash_attention.md").read_text()
    return re.search(r"^Reproduce a cell: `lmperf (.*)`$", page, re.MULTILINE)[1]


def test_command_below_a_table_measures_its_cell_again(measured, lmperf, templates):
    line = command_of_page(measured, lmperf, templates)
    evidence = (measured / "report/here/evidence/flash_attention.csv").read_bytes()
    code, out, said = lmperf(*shlex.split(line))
    assert code in (0, 1), said
    cell, phase = re.search(r"--only (\S+) .*--phases (\S+) ", line).groups()
    assert f"Against here: {cell.replace(',', ', ')}, " in out
    verdict = out.rpartition("\n")[2] or out.splitlines()[-1]
    assert re.search(r"reproduced within|differs by|cannot be judged: (marked|unresolved)", verdict)
    assert (code == 0) == ("reproduced within" in verdict)
    assert phase in line
    assert (measured / "report/here/evidence/flash_attention.csv").read_bytes() == evidence


def test_cell_without_evidence_is_measured_and_not_judged(measured, lmperf):
    narrow = ("--only", "seq_len=33", "--implementations", "sdpa", "--phases", "forward")
    code, out, said = lmperf("run", "flash_attention", *narrow, "--against", "here")
    assert code == 1, said
    assert "cannot be judged: here has no such row" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "elsewhere"], "no evidence of machine elsewhere; there is of: here"),
        (["--against", "../x"], "MACHINE is '../x'; it must be a name"),
        (["--against", "here", "--keep"], "leave --keep out"),
    ],
)
def test_invalid_machine_prints_one_line_and_exits_with_2(measured, lmperf, arguments, words):
    code, out, said = lmperf("run", "flash_attention", *arguments)
    assert (code, out, said.count("\n")) == (2, "", 1), said
    assert words in said
