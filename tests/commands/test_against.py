"""`lmperf run --against`: rows of the evidence, measured again."""

import csv
import re

import pytest

pytestmark = pytest.mark.process

VERDICT = r"reproduced within|differs by|cannot be judged: (measured beside|unresolved)"


def test_rows_are_measured_again_by_their_key(folder, lmperf):
    assert lmperf("measure", "flash_attention")[0] == 0
    assert lmperf("list", "flash_attention")[1].count(": fresh") == 2

    evidence = folder / "report/here/evidence/flash_attention.csv"
    before = evidence.read_bytes()
    row, *others = csv.DictReader(evidence.read_text().splitlines())
    assert len(others) == 3
    code, out, said = lmperf("run", "--row", row["key"], "--against", "here")
    assert code in (0, 1), said
    assert re.search(rf"^Against here: batch=1, .*, {row['phase']}$", out, re.MULTILINE)
    verdict = out.splitlines()[-1]
    assert re.search(VERDICT, verdict) and (code == 0) == ("reproduced within" in verdict)
    assert evidence.read_bytes() == before

    outside = ("--only", "seq_len=33", "--implementations", "sdpa", "--phases", "forward")
    code, out, said = lmperf("run", "flash_attention", *outside, "--against", "here")
    assert code == 1, said
    assert "cannot be judged: here has no such row" in out
    assert "outside the grid of the report: 1 of 1 cases" in said

    code, out, said = lmperf("run", "--row", "0123", "--against", "here")
    assert (code, out) == (2, "") and "has no row with the key 0123" in said
