"""Noise floors (how far A/A intervals exclude 1) and numbers of rounds on the method page."""

import pandas as pd

from lmperf.reporting import machine
from lmperf.reporting.evidence import MachineEvidence


def evidence(*rows):
    common = {"implementation": "eager", "phase": "forward", "status": "ok"}
    frame = pd.DataFrame([{"dtype": "float32", **common, **row} for row in rows])
    return MachineEvidence("m", frames={"topic": frame})


def test_noise_floor_note_covers_dtypes_without_a_a_pairs():
    found = machine.floors_table(
        evidence(
            {"rounds_ms": ";".join(["1.0"] * 6), "again_ms": ";".join(["1.02"] * 6)},
            {"rounds_ms": "1.0;1.0", "dtype": "bfloat16"},
        )
    )
    assert found.frame.drop(columns=["benchmark", "phase"]).values.tolist() == [
        ["float32", "from 0.3 ms", 1, "2.0 %", "10.0 %"],
        ["bf16", "from 0.3 ms", 0, "–", "10.0 %"],
    ]
    assert "With fewer than 5 unmarked pairs, the floor is that of all calls of this kind" in str(
        found.notes
    )
    assert machine.floors_table(evidence({"rounds_ms": "1.0;1.0"})) is None


def test_method_states_the_range_of_numbers_of_rounds():
    rows = [{"rounds_ms": ";".join(["1.0"] * n)} for n in range(6, 40)]
    assert machine.method(evidence(*rows))["rounds"] == "6 to 39"
    assert machine.method(evidence({}))["rounds"] == ""
