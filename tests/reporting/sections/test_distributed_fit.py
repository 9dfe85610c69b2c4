"""Tables D13 and D16: what a model needs, and the leaderboard's step on several GPUs."""

import functools

import pytest
from finding_checks import assert_answers_reached
from synthetic import cpu_evidence, gpu_evidence, provenance, with_frames
from synthetic.builder import CPU, GPU, Builder
from synthetic.checkpoints import leaderboard as one_gpu
from synthetic.distributed import memory

from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.distributed import fit, leaderboard

AUTOCAST = "autocast_bfloat16"


def with_memory(device_gib=139.8):
    rows = provenance(memory(GPU, ("large", "3.4B"), (AUTOCAST,)), "e1")
    made = with_frames(gpu_evidence(), distributed_memory=rows)
    for facts in made.facts["environments"].values():
        facts["device_memory_gib"] = device_gib
    return made


def with_steps(factor=0.48):
    frame = one_gpu(Builder(7)).assign(ranks=2)
    frame = frame[frame["implementation"] != "keep_attention"]
    names = {"recompute_all": "data_parallel", "keep_matmuls": "sharded_moments"}
    frame = frame.assign(implementation=frame["implementation"].map(names))
    frame = frame[["size", "context_length", "batch", "ranks", *frame.columns[3:-1]]]
    frame = frame.assign(**{name: frame[name] * factor for name in ("median_ms", "mean_ms")})
    return with_frames(gpu_evidence(), distributed_leaderboard=provenance(frame, "e1"))


def table(made, name):
    (found,) = compose("distributed", made, drawn=False).parts[name]
    return found


def test_d13_names_the_least_number_of_gpus_of_each_kind():
    frame = table(with_memory(), "D13").frame.set_index(["size", "strategy", "checkpoints"])
    assert len(frame) == 4 * 4 * 2
    ours = frame.loc["12.8B", "ZeRO-3, fully sharded", "yes"]
    assert ours["H200: fits from (GPUs)"] == "2" and ours["H100 80GB HBM3: fits from (GPUs)"] == "3"
    assert frame.loc["12.8B", "data parallel", "yes"]["B200: fits from (GPUs)"] == "none"
    assert frame.loc["3.4B", "data parallel", "no"]["parameters (GiB)"] == "12.7"


def test_d13_says_how_far_measured_peaks_are_from_the_closed_form():
    assert (
        "peaks per rank, +1.0 % to +1.0 % from the closed form" in table(with_memory(), "D13").notes
    )


def test_d13_of_a_cpu_names_kinds_of_gpus_only():
    rows = provenance(memory(CPU, ("tiny",), ("float32",), context=128), "e1")
    found = table(with_frames(cpu_evidence(), distributed_memory=rows), "D13")
    assert [c.name for c in found.columns if c.name.startswith("least")] == [
        f"least.{kind}" for kind in fit.KINDS
    ]


def test_finding_on_the_largest_model_gives_every_declared_answer():
    cases = {
        "distributed_fit": {
            "sharded": with_memory,
            "both": functools.partial(with_memory, 400.0),
            "never": functools.partial(with_memory, 2.0),
        }
    }
    assert_answers_reached(fit.FINDINGS, cases)


def test_d16_compares_steps_with_the_fastest_of_one_gpu():
    frame = table(with_steps(), "D16").frame.set_index("implementation")
    (name,) = (name for name in frame.index if "sharded" in name)
    assert float(frame.loc[name, "one GPU / this"][:-1]) == pytest.approx(1 / 0.48, rel=0.02)
    mfu = float(frame.loc[name, "MFU (%)"])
    rate = float(frame.loc[name, "rate of all GPUs (TFLOP/s)"].replace(",", ""))
    assert mfu == pytest.approx(100 * rate / 2 / 989.5, rel=0.01)


def test_d16_finding_gives_every_declared_answer():
    cases = {"beats": with_steps, "behind": functools.partial(with_steps, 1.5)}
    assert_answers_reached((leaderboard.FINDING,), {"distributed_leaderboard": cases})
    said = state(leaderboard.FINDING, with_steps()).sentence
    assert "on 2 GPUs, 2.0" in said and "as fast as on one (moments sharded, 128 GiB each)" in said
