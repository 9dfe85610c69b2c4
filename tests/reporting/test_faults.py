"""Failures of any kind, number and place: everything is rendered, and each is named in its cell.

``LMPERF_FAULTS=200 python -m pytest tests/reporting/test_faults.py`` draws so many examples.
"""

import os

import synthetic
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from synthetic.failures import REASONS, SCOPES, Fault, faulty

from lmperf.benchmark import stems
from lmperf.reporting import pages

EXAMPLES = int(os.environ.get("LMPERF_FAULTS", 2))
MACHINES = {"cpu": synthetic.cpu_evidence(), "gpu": synthetic.few(synthetic.gpu_evidence())}

statuses = st.lists(st.sampled_from(sorted(REASONS)), min_size=1, max_size=3, unique=True)
faults = st.lists(
    st.builds(
        Fault,
        stem=st.sampled_from(stems()),
        scope=st.sampled_from(SCOPES),
        statuses=statuses.map(tuple),
        seed=st.integers(0, 2**16),
    ),
    min_size=1,
    max_size=6,
)


def rendered(evidence):
    """All files of a machine, and the overview over it and another machine."""
    sections = pages.composed(evidence, synthetic.TEMPLATES)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    both = [evidence, MACHINES["cpu"]]
    over = pages.overview_files(both, evidence.machine, sections, synthetic.TEMPLATES)
    return files | {f"overview/{name}": text for name, text in over.items()}


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(machine=st.sampled_from(sorted(MACHINES)), faults=faults)
def test_failures_are_rendered(machine, faults):
    rendered(faulty(MACHINES[machine], faults))
