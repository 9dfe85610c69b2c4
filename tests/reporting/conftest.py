"""A user's template over two train steps; makes `planted` importable wherever the tests start."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planted import evidence, page, row

from lmperf.reporting.render import load_templates


@pytest.fixture
def here():
    """Evidence of a train step in two dtypes."""
    steps = [
        row("end_to_end", ms, dtype=dtype, phase="train_step", tokens=4096)
        for dtype, ms in (("float32", 100), ("autocast_bfloat16", 40))
    ]
    return evidence(*steps)


@pytest.fixture
def template(here, tmp_path):
    """Render a text as a user's template over `here`."""

    def render(text, name="mine", form="markdown"):
        (tmp_path / f"{name}.md.j2").write_text(text)
        load_templates.cache_clear()
        return page(name, here, own=tmp_path, form=form)

    return render
