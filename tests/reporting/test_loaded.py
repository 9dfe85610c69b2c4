"""No sentence rests on rows that were measured beside other load."""

import re

import pytest
import synthetic

pytestmark = pytest.mark.machine
TIME = re.compile(r"\d \**(ms|us|µs|TFLOP/s|tokens/s)\b")
# What no row of this machine says.
KNOWN = ("data sheet", "its authors publish", "0.5 µs that events resolve")


def sentences(pages):
    lines = (line for page in pages.values() for line in page.splitlines())
    shown = (line for line in lines if not line.startswith(("|", "#", "!", "<", "Times:")))
    every = (part for line in shown for part in re.split(r"(?<=\.)\s|; ", line))
    return [one for one in every if TIME.search(one) and not any(word in one for word in KNOWN)]


def test_no_sentence_has_a_time_if_all_rows_are_loaded(monkeypatch):
    golden = {path.stem: path.read_text() for path in synthetic.GOLDEN.glob("*.txt")}
    assert len(sentences(golden)) > 10
    made = synthetic.machine()
    for rows in made.raw.values():
        rows[:] = [row | {"marks": "loaded"} if row["status"] == "ok" else row for row in rows]
    monkeypatch.setattr(synthetic, "machine", lambda: made)
    assert not sentences(synthetic.rendered())
