"""Every page of a made-up machine is, to the letter, the one in `golden/`."""

import pytest
import synthetic


@pytest.mark.machine
def test_pages_are_the_golden_ones():
    golden = {path.stem: path.read_text() for path in synthetic.GOLDEN.glob("*.txt")}
    rendered = synthetic.rendered()
    assert {*rendered} == {*golden}
    for page, text in golden.items():
        words = f"{page} differs: if it should, run python tests/reporting/synthetic.py"
        assert rendered[page] == text, words
