"""Facts of a machine (machine.json) that are missing, invalid, or of another environment."""

import math

import markdown
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmperf.reporting import ceilings, machine, other_machines, pages, sections
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.facts import FLAGS, NUMBERS, TEXTS, facts_of
from lmperf.reporting.markdown import markdown as as_markdown

FRAMES = {"ceilings": synthetic.cpu_evidence().frames["ceilings"]}
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
names = st.sampled_from([*TEXTS, *NUMBERS, *FLAGS, "settings", "cudnn"]) | st.text(max_size=5)
environments = st.dictionaries(
    st.sampled_from(["e1", "e2", "|"]), st.dictionaries(names, values) | values, max_size=3
)
contents = values | st.fixed_dictionaries(
    {}, optional={"machine": values, "preset": values, "environments": environments | values}
)


def evidence_with(content, **columns):
    frames = {stem: frame.assign(**columns) for stem, frame in FRAMES.items()}
    return MachineEvidence("m", content, frames)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(contents)
def test_any_content_of_machine_json_is_rendered(content):
    evidence = evidence_with(content)
    text = pages.write_up(evidence, [], synthetic.TEMPLATES)
    text += pages.tidy(as_markdown(other_machines.machines_lines([evidence])))
    table = machine.facts_table(evidence)
    text += pages.tidy(as_markdown(table)) if table else ""
    ceilings.sheet_share(evidence, evidence.frame("ceilings"))
    assert not markdown.foreign_tags(text) and not markdown.ragged(text)


@pytest.mark.parametrize("key", [*TEXTS, *NUMBERS, *FLAGS])
@pytest.mark.parametrize("value", [[], {}, "text", 1, True, math.nan, 10**400])
def test_fact_of_the_wrong_type_is_dropped(key, value):
    wanted = str if key in TEXTS else bool if key in FLAGS else int
    (found,) = facts_of({"environments": {"e": {key: value}}})["environments"].values()
    assert found == ({key: value} if type(value) is wanted and value != 10**400 else {})


def test_preset_of_the_wrong_type_is_dropped():
    assert "preset" not in facts_of({"preset": ["gpu"]})
    assert facts_of({"preset": "gpu"})["preset"] == "gpu"


def test_rows_of_an_unrecorded_environment_get_no_facts():
    known = synthetic.facts("m", "cuda", "NVIDIA H200")
    evidence = evidence_with(known, environment="gone")
    text = pages.write_up(evidence, [], synthetic.TEMPLATES)
    rows = f"{len(FRAMES['ceilings'])} rows from an unrecorded environment"
    assert rows in text and "H200" not in text
    assert ceilings.data_sheet(evidence) is None
    assert "not recorded" not in pages.write_up(evidence_with(known), [], synthetic.TEMPLATES)


def test_data_sheet_applies_to_rows_of_its_environment_only():
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames["end_to_end"]
    frame.loc[frame.index[::2], "environment"] = "gone"
    frame = evidence.frame("end_to_end")
    share = ceilings.sheet_share(evidence, frame)
    assert share[frame["environment"] == "gone"].isna().all()
    assert share[frame["environment"] == "e1"].notna().any()
    assert f"{(frame['environment'] == 'gone').sum()} rows" in machine.facts_line(evidence)[-1]


def test_method_page_names_an_unrecorded_environment():
    evidence = evidence_with({}, environment="gone")
    section = sections.compose("method", evidence)
    assert "environment gone" in pages.page(evidence, section, synthetic.TEMPLATES)
