"""`lmperf run --against`: rows of the evidence, measured again."""

import csv

import pytest
from made_up import OK, pretend, rounds


@pytest.mark.slow
def test_rows_are_measured_again_by_their_key(folder, lmperf, monkeypatch):
    pretend(monkeypatch, lambda *_: OK | rounds(1.0))
    assert lmperf("measure", "flash_attention")[0] == 0
    assert lmperf("list", "flash_attention")[1].count(": fresh") == 2

    evidence = folder / "report/here/evidence/flash_attention.csv"
    before = evidence.read_bytes()
    row, *others = csv.DictReader(evidence.read_text().splitlines())
    assert len(others) == 3
    for ms, expected, verdict in ((1.0, 0, "reproduced within"), (2.0, 1, "differs by")):
        pretend(monkeypatch, lambda *_, ms=ms: OK | rounds(ms))
        code, out, said = lmperf("run", "--row", row["key"], "--against", "here")
        assert code == expected, said
        against = next(line for line in out.splitlines() if line.startswith("Against here: batch"))
        assert against.endswith(f", {row['phase']}") and verdict in out.splitlines()[-1]
    assert evidence.read_bytes() == before

    outside = ("--only", "seq_len=33", "--implementations", "sdpa", "--phases", "forward")
    code, out, said = lmperf("run", "flash_attention", *outside, "--against", "here")
    assert code == 1, said
    assert "cannot be judged: here has no such row" in out
    assert "outside the grid of the report: 1 of 1 cases" in said

    code, out, said = lmperf("run", "--row", "0123", "--against", "here")
    assert (code, out) == (2, "") and "has no row with the key 0123" in said
