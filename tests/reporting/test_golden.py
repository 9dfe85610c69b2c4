"""Every page of a made-up machine is, to the letter, the one in `golden/`."""

import pytest
import synthetic

pytestmark = pytest.mark.machine
GOLDEN = {path.stem: path.read_text() for path in synthetic.GOLDEN.glob("*.txt")}


@pytest.fixture(scope="session")
def rendered():
    return synthetic.rendered()


def test_golden_pages_are_all_pages(rendered):
    assert {*rendered} == {*GOLDEN}


@pytest.mark.parametrize("page", sorted(GOLDEN))
def test_page_is_the_golden_one(rendered, page):
    words = f"{page} differs: if it should, run python tests/reporting/synthetic.py"
    assert rendered[page] == GOLDEN[page], words
