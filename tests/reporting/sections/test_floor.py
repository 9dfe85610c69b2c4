"""The parts of a step: at rates of this machine, and only where all of them are known."""

import planted
import pytest

from lmperf.names import size_words
from lmperf.reporting.sections import section
from lmperf.transformer.floor import step_work
from lmperf.transformer.sizes import SIZES

SIZE, AUTOCAST = "0.97B", "autocast_bfloat16"
CELL = {"size": SIZE, "context_length": 1024, "batch": 4}
WORK = step_work(SIZES[SIZE], 1024, 4, AUTOCAST)
KERNELS = {"nvjet_sm90_tst": 36.0, "fused_kernel": 7.0, "adamw_kernel": 6.5, "swiglu_kernel": 9.0}


def rates(attention=("forward", "backward")):
    """700 TFLOP/s, 4,000 GB/s, and 300 TFLOP/s of attention, also a slower one of a small batch."""
    matmul = {"operation": "matmul", "dtype": "bfloat16", "load": "sustained"}
    matmul |= {"tflops": 700.0, "flops": 700e9}
    copy = {"operation": "copy", "dtype": "float32", "load": "burst", "bandwidth_gbps": 4000.0}
    kernel = {"seq_len": 1024, "d_head": 64, "dtype": "bfloat16", "causal": True}
    kernel |= {"implementation": "triton", "cuda_graph": False}
    return [
        *(planted.row("ceilings", 1.0, **of) for of in (matmul, copy)),
        *(
            planted.row("flash_attention", 1.0, phase=phase, flops=work, batch=b, heads=b, **kernel)
            for phase in attention
            for b, work in ((1, 10e9), (16, 300e9))
        ),
    ]


def steps():
    shared = {**CELL, "dtype": AUTOCAST, "implementation": "graph", "phase": "train_step"}
    profile = [
        planted.row("profiles", table="kernel", name=name, total_ms=ms, instances=1, **shared)
        for name, ms in KERNELS.items()
    ]
    return [planted.row("end_to_end", 60.0, **shared), *profile]


def test_parts_are_work_over_rates():
    floor = section(planted.evidence(*rates(), *steps()), "floor")
    line = floor.lines.one
    assert line["size"] == size_words(SIZE)
    assert line["matmul"] == pytest.approx(WORK.matmul / 700e9)
    attention = WORK.attention_forward + WORK.attention_backward
    assert line["attention"] == pytest.approx(attention / 300e9)
    assert line["optimizer"] + line["rest"] == pytest.approx((WORK.optimizer + WORK.rest) / 4000e6)
    assert line["of_step"] == pytest.approx(line["sum_ms"] / 60)
    assert line["beyond_ms"] == pytest.approx(60 - sum(KERNELS.values()))
    differences = {part: ms * (1 if more == "more" else -1) for part, ms, more in floor.differences}
    assert next(iter(differences)) == "attention"
    assert differences["attention"] == pytest.approx(7.0 - line["attention"])
    assert sum(differences.values()) == pytest.approx(sum(KERNELS.values()) - line["sum_ms"])


@pytest.mark.parametrize(
    ("ms", "watts", "is_clock"), [(60.0, 690, True), (60.0, 600, False), (50.0, 690, False)]
)
def test_step_longer_than_its_profile_is_one_at_the_power_limit(ms, watts, is_clock):
    step, *profile = steps()
    step |= {"median_ms": str(ms), "power_w": str(watts), "clock_mhz": "1500"}
    facts = planted.H200 | {"clock_sm_mhz": 1980}
    of = planted.evidence(*rates(), step, *profile, facts=facts)
    said = planted.printed(planted.page("report/time", of))
    assert ({ms, 1980, 1500} <= {*said}) is is_clock


def test_page_shows_no_floor_without_a_rate():
    floor, known = (
        planted.page("profiles", planted.evidence(*of, *steps())).text
        for of in (rates(("forward",)), rates())
    )
    assert "P5" not in floor and "## P5. The parts of a step" in known
