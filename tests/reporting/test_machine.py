"""What the method page says of the machine: noise floors, numbers of rounds."""

import pandas as pd

from lmperf.reporting import machine
from lmperf.reporting.evidence import MachineEvidence


def evidence(*rows):
    common = {"implementation": "eager", "phase": "forward", "status": "ok"}
    frame = pd.DataFrame([{"dtype": "float32", **common, **row} for row in rows])
    return MachineEvidence("m", frames={"topic": frame})


def test_a_numerics_without_pairs_stands_in_the_table_of_floors_with_what_holds_instead():
    found = machine.floors_table(
        evidence(
            {"rounds_ms": "1.0;1.0", "again_ms": "1.02;1.02"},
            {"rounds_ms": "1.0;1.0", "dtype": "bfloat16"},
        )
    )
    assert found.frame[["numerics", "noise floor", "cells"]].values.tolist() == [
        ["float32", "2.00 %", 1],
        ["bf16", "–", 0],
    ]
    assert "1 % holds" in found.note
    assert machine.floors_table(evidence({"rounds_ms": "1.0;1.0"})) is None


def test_the_method_says_the_range_of_many_numbers_of_rounds():
    rows = [{"rounds_ms": ";".join(["1.0"] * n)} for n in range(6, 40)]
    assert machine.method(evidence(*rows))["rounds"] == "6 to 39"
    assert machine.method(evidence({}))["rounds"] == ""
