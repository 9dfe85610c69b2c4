"""The report renders any combination of failed rows and names each failure in a table.

By default one fixed example runs. This command runs 200 random examples as well:
``LMPERF_FAULTS=200 python -m pytest tests/reporting/test_faults.py``.
"""

import os
import re

import pytest
import synthetic
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from synthetic.failures import ALL, LACKING, REASONS, SCOPES, Fault, faulty

from lmperf.benchmarks import load, stems
from lmperf.reporting import coverage, gates, pages, sections
from lmperf.reporting.figures import LIGHT, draw
from lmperf.reporting.tables import status_words

pytestmark = pytest.mark.machine

EXAMPLES = int(os.environ.get("LMPERF_FAULTS", 0))
MACHINES = {"cpu": synthetic.cpu_evidence(), "gpu": synthetic.small(synthetic.gpu_evidence())}
# Status words that a table of the benchmark replaces: its gate column says `failed`, and its other
# columns show the errors.
SAID_OTHERWISE = {"flash_attention_check": {"gate failed, withheld"}}
UNSEEN = "its page does not show it"

MANY = [
    Fault("attention", "one phase", ("oom", "crash"), 1),
    Fault("flash_attention", "all", ("failed_check", "nan", "unsupported"), 2),
    Fault("memory_timeline", "one phase", ("oom", "timeout"), 3),
    Fault("profiles", "some", ("crash",), 4),
    Fault("end_to_end", "one implementation", ("timeout", "nan"), 5),
    Fault("ceilings", "one cell", ("crash",), 6),
    Fault("lrpe", "lacking", ("crash",), 7),
]
faults = st.lists(
    st.builds(
        Fault,
        stem=st.sampled_from(stems()),
        scope=st.sampled_from(SCOPES),
        statuses=st.lists(st.sampled_from(sorted(REASONS)), min_size=1, max_size=3).map(tuple),
        seed=st.integers(0, 2**16),
    ),
    min_size=1,
    max_size=6,
)


def drawn_once(build):
    """Draw the figure in the light theme and use the SVG for both themes."""
    svg = draw(build).get("light")
    return {"light": svg, "dark": svg} if svg else {}


@pytest.fixture(scope="module", autouse=True)
def one_theme():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lmperf.reporting.figures.THEMES", (LIGHT,))
        patch.setattr(sections, "draw", drawn_once)
        yield


def rendered(evidence):
    """All rendered files of a machine, and the tables whose rows its pages do not show."""
    made = pages.composed(evidence, synthetic.TEMPLATES)
    files = pages.machine_files(evidence, made, synthetic.TEMPLATES)
    both = [evidence, MACHINES["cpu"]]
    pages.overview_files(both, evidence.machine, made, synthetic.TEMPLATES)
    return files, [gap for gap in coverage.gaps(coverage.states(evidence, made)) if UNSEEN in gap]


def lines_without_numbers(files):
    """Lines that print a missing value as `nan`, `None`, `NaT` or `inf`."""
    lines = [line for text in files.values() for line in text.splitlines() if "<" not in line]
    return [line for line in lines if re.search(r"\b(nan|None|NaT|inf)\b", line)]


def unnamed_failures(evidence, files):
    """(benchmark, status words) of failures that no table on the page of the benchmark names."""
    found = []
    for stem, frame in evidence.present().items():
        page = files[f"{load(stem).section or stem}.md"]
        # An implementation that supports no cell has no column: a list line states the reason.
        lines = [n for n in page.splitlines() if n.startswith(("|", "- unsupported, "))]
        words = set(status_words(frame[~gates.shown(frame)])) - SAID_OTHERWISE.get(stem, set())
        found += [(stem, w) for w in words if not any(w in line for line in lines)]
    return found


@settings(
    max_examples=max(EXAMPLES, 1),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, *([Phase.generate] if EXAMPLES else [])],
    suppress_health_check=list(HealthCheck),
)
@example(machine="cpu", faults=MANY)
@given(machine=st.sampled_from(sorted(MACHINES)), faults=faults)
def test_pages_render_and_name_every_failure(machine, faults):
    evidence = faulty(MACHINES[machine], faults)
    files, unseen = rendered(evidence)
    assert not unnamed_failures(evidence, files) and not unseen and not lines_without_numbers(files)


@pytest.mark.parametrize("scope", [ALL, LACKING])
@pytest.mark.parametrize("stem", ["attention", "flash_attention", "memory_timeline"])
def test_section_without_a_valid_row_states_the_failure(stem, scope):
    evidence = faulty(MACHINES["cpu"], [Fault(stem, scope, ("crash", "failed_check"), 1)])
    section = sections.compose(load(stem).section or stem, evidence)
    text = pages.page(evidence, section, synthetic.TEMPLATES)
    assert ("crash" in text) == (scope == ALL)
