"""Sections of what is observed rather than timed: profiles, warm-up, memory over time, limits."""

import pandas as pd
import pytest

from lmperf.reporting import gates
from lmperf.reporting.sections import memory_timeline, profiles, warmup
from lmperf.reporting.sections.attention import limit
from lmperf.reporting.sections.memory_timeline.figure import CELL, COLOURS
from lmperf.reporting.sections.profiles.tables import CLASSES, short


def lines(text, caption):
    """The lines of the table under a caption, as dicts of stripped cells."""
    body = text.split(f"**{caption}")[1].split("\n\n")[1].splitlines()
    header, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in body)
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, int>",
            "vectorized_elementwise_kernel [MulFunctor]",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
            "at::native::BinaryFunctor<float, at::native::binary_internal::MulFunctor<float>>>>",
            "elementwise_kernel [MulFunctor]",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            "vectorized_elementwise_kernel [CUDAFunctor_add]",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)",
            "Kernel2 [cutlass_80_simt_sgemm_256x128_8x4_nt_align1]",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 9>(int)", "softmax_warp_forward"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("triton_poi_fused_mul_silu_4", "triton_poi_fused_mul_silu_4"),
        ("x" * 100, "x" * 67 + "..."),
    ],
)
def test_names_of_kernels_are_short(name, words):
    assert short(name) == words


def test_shares_of_the_classes_add_up_to_one(gpu):
    for row in lines(profiles.tables(gpu)["p2"], "Table P2"):
        shares = [float(row[name].rstrip(" %")) for name in CLASSES]
        assert sum(shares) == pytest.approx(100, abs=1)
        assert 0 < float(row["device busy"].rstrip(" %")) <= 100


def test_kernels_without_a_class_turn_their_gate_red_and_the_claim_false(gpu):
    frame = gpu.frames["profiles"]
    assert not gates.red(frame).any()
    other = (frame["table"] == "class") & (frame["name"] == "other")
    frame.loc[other, ["time_share", "max_error"]] = 0.06
    assert gates.red(frame).sum() == other.sum() > 0
    claim = next(claim for claim in profiles.CLAIMS if claim.name == "other_share")
    assert not claim.holds(claim.values(gpu))


def test_warm_up_leaves_out_the_first_steps(gpu):
    frame = gpu.frames["warmup"]
    frame.loc[:, "step_ms"] = 10.0
    frame.loc[frame["step"] == 1, "step_ms"] = 110.0
    shown = lines(warmup.tables(gpu)["e2"], "Table E2")
    first = [row for row in shown if row["warm-up steps"] == "0"]
    later = [row for row in shown if row["warm-up steps"] != "0"]
    assert {row["step (ms, mean ± std)"] for row in first} == {"20.0 ± 31.6"}
    assert {row["step (ms, mean ± std)"] for row in later} == {"10.0 ± 0.0"}
    claims = {claim.name: claim for claim in warmup.CLAIMS}
    values = claims["first_step"].values(gpu)
    assert values["lowest"] == values["highest"] == pytest.approx(11)
    spread = claims["spread"].values(gpu)
    assert spread["zero"] == pytest.approx(31.62 / 20, rel=1e-3) and spread["five"] == 0


def test_the_level_of_every_curve_is_what_its_peak_says(gpu):
    frame = gpu.frames["memory_timeline"]
    curves = frame[frame["table"] == "curve"]
    levels = curves[[f"{name}_mib" for name in COLOURS]].sum(axis=1)
    peaks = levels.groupby([curves[name] for name in CELL]).max()
    recorded = curves.groupby(CELL)["recorded_mib"].first()
    pd.testing.assert_series_equal(peaks, recorded, check_names=False)


def test_inference_keeps_no_activations(gpu):
    for row in lines(memory_timeline.tables(gpu)["y5"], "Table Y5"):
        predicted, measured = (float(v.replace(",", "")) for v in row["activations"].split(" / "))
        assert (predicted == measured == 0) == (row["phase"] == "inference")


def test_a_limit_that_is_missed_contradicts_the_claim(gpu):
    claim, frame = limit.CLAIMS[0], gpu.frames["attention_limit"]
    assert claim.holds(claim.values(gpu))
    gpu.derived.clear()
    frame.loc[frame.index[0], "outcome"] = "fits"
    frame.loc[frame.index[0], "requested_mib"] = float("nan")
    assert not claim.holds(claim.values(gpu))


def test_a_limit_that_was_not_run_is_not_measured(gpu):
    gpu.frames["attention_limit"]["outcome"] = "not run: it would take the memory of all"
    with pytest.raises(limit.NotMeasured, match="not run"):
        limit.CLAIMS[0].values(gpu)
