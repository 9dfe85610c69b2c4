"""Tests of the page of FlashAttention-2 and of its part of the first page."""

import itertools

import planted
import pytest
from planted_steps import AUTOCAST, sdpa, step

from lmperf.reporting.sections import section

STEM, PART = "flash_attention", "report/kernels"
PHASES = {"forward": 1.0, "backward": 2.5, "forward_backward": 3.5}
FLOPS = {"forward": 4e11, "backward": 1e12, "forward_backward": 1.4e12}
GRID = {64: 32, 80: 25, 128: 16}  # d_head -> heads


def rows(implementation, factor=1.0, lengths=(1024, 4096, 16384), widths=(64, 128), **values):
    """Rows of the filled grid in bf16, causal and full; ``factor``: of the times of each phase."""
    factors = factor if isinstance(factor, dict) else dict.fromkeys(PHASES, factor)
    cells = itertools.product(lengths, widths, (True, False), PHASES)
    return [
        planted.row(
            STEM,
            **{
                "ms": PHASES[phase] * factors[phase],
                "implementation": implementation,
                "batch": 16384 // length,
                "heads": GRID[width],
                "seq_len": length,
                "d_head": width,
                "dtype": "bfloat16",
                "causal": causal,
                "cuda_graph": False,
                "phase": phase,
                "flops": FLOPS[phase],
                "bytes": FLOPS[phase] / 400,
                "host_ms": 0.1,
            }
            | values,
        )
        for length, width, causal, phase in cells
    ]


def ceilings(tflops, gbps):
    """The best matmul and the best copy, each of 1 ms."""
    of = {"dtype": "bfloat16", "flops": tflops * 1e9, "bytes": gbps * 1e6}
    matmul = planted.row("ceilings", 1.0, operation="matmul", tflops=tflops, **of)
    return matmul, planted.row("ceilings", 1.0, operation="copy", bandwidth_gbps=gbps, **of)


def part(*made):
    return planted.page(PART, planted.evidence(*made))


@pytest.mark.parametrize(
    ("ours", "verdicts"),
    [
        (rows("triton", 0.5), {"faster"}),
        (rows("triton", 2.0), {"slower"}),
        (rows("triton"), {"same"}),
        (rows("triton", spread=150), {"unresolved"}),
        ([], set()),
    ],
    ids=["fast", "slow", "equal", "noisy", "missing"],
)
def test_first_page_follows_the_data(ours, verdicts):
    page = part(*ours, *rows("sdpa_cudnn"))
    assert {one.verdict for one in page.numbers} - {""} == verdicts
    assert bool(page.said) is bool(ours)


def test_lengths_are_in_the_order_of_their_numbers():
    table = part(*rows("triton", 0.5), *rows("sdpa_cudnn")).tables[1]
    headers = [column.header for column in table.columns if column.header.startswith("length")]
    assert headers == ["length 1,024", "length 4,096", "length 16,384"]


def test_first_table_leads_with_the_heads_of_the_models():
    made = [*rows("triton"), *rows("sdpa_cudnn", 0.5), *rows("eager")]
    made += rows("triton", widths=(80,))
    page = part(*made)
    table = page.tables[0]
    _, *headers = [column.header for column in table.columns]
    shapes = ("d_head 64, length 1,024", "d_head 80, length 1,024", "d_head 128, length 16,384")
    phases = ("forward", "backward")
    assert headers == [f"{shape}, {phase}" for shape in shapes for phase in phases]
    assert [cell.words for cell in table.columns[0].cells] == [
        "lmperf's kernel",
        "SDPA cuDNN",
        "PyTorch",
    ]
    assert "first the heads of lmperf's models" in page.text


@pytest.mark.parametrize(("factor", "peer"), [(0.9, "flash_attention_4"), (1.1, "sdpa_cudnn")])
def test_the_fastest_peer_is_the_one_compared(factor, peer):
    made = [*rows("triton", 0.5), *rows("sdpa_cudnn"), *rows("flash_attention_4", factor)]
    assert section(planted.evidence(*made), STEM).peer == peer


def test_sentences_have_all_shapes_of_a_width():
    """The best cell, an undecided and a slow one stand in one range, and each is counted."""
    made = [*rows("sdpa_cudnn"), *rows("triton", lengths=(4096,))]
    made += rows("triton", 0.5, lengths=(1024,)) + rows("triton", 2.0, (16384,))
    said = part(*made).said[0]
    counts = "0.50x to 2.00x (faster in 2, same in 2, slower in 2)"
    assert said.count(counts) == 4, said


@pytest.mark.parametrize(
    ("slow", "factor", "said"), [(3, 1.0, True), (2, 1.0, True), (2, 0.5, False), (1, 1.0, False)]
)
def test_kernels_that_are_faster_in_most_shapes_are_named(slow, factor, said):
    """Of one head width the backward of some lengths is slower, that of others factor as long."""
    lengths = (1024, 4096, 16384)
    factors = {"forward": 0.5, "backward": 2.0, "forward_backward": 1.0}
    made = [*rows("sdpa_cudnn", widths=(64,)), *rows("triton", factors, lengths[:slow], (64,))]
    made += rows("triton", factors | {"backward": factor}, lengths[slow:], (64,))
    words = "in most shapes (bf16): SDPA cuDNN in the backward at d_head 64, filled grid (0.50x)."
    assert (words in part(*made).text) is said


@pytest.mark.parametrize("is_wrong", [True, False])
def test_wrong_results_are_named_with_their_errors(is_wrong):
    errors = {"error_out": 0.003, "error_dq": 5.0, "error_bound": 0.02, "max_error": 5.0}
    peer = rows("flash_attention_4", widths=(64, 128))
    peer += rows("flash_attention_4", widths=(80,), status="failed_check", ms=None, **errors)
    here = planted.evidence(*rows("triton"), *peer[: None if is_wrong else -18])
    words = "at d_head 80: dQ is off by 5.00 times its size (bound 0.0200) in 6 shapes; errors of"
    words += " output are at most 0.00300; at d_head 64 and 128 results are right."
    for page in (planted.page(PART, here), planted.page(STEM, here)):
        assert (words in page.text) is is_wrong
    assert ("flash-attention#2896" in page.text) is is_wrong


def test_failed_timed_call_is_named_beside_wrong_results():
    """Its errors are those of the check before, which it passed."""
    right = {"error_dq": 0.01, "error_bound": 0.02, "max_error": 0.01}
    wrong = {"error_out": 0.003, "error_dq": 5.0, "error_bound": 0.02, "max_error": 5.0}
    failed = {"status": "failed_check", "ms": None}
    peer = rows("flash_attention_4", widths=(64, 128))
    peer[-1] |= failed | right | {"reason": "a timed call returned a wrong dq: error 0.025"}
    peer += rows("flash_attention_4", widths=(80,), **failed, **wrong)
    here = planted.evidence(*rows("triton"), *peer)
    words = "in 6 shapes; errors of output are at most 0.00300; at d_head 64 results are right."
    words += " FlashAttention-4 at d_head 128, 1 of its shapes: passed before the timing, but a"
    words += " timed call returned a wrong dq: error 0.025."
    for page in (planted.page(PART, here), planted.page(STEM, here)):
        assert words in page.text
    check = planted.row("flash_attention_check", max_error=0.01, error_bound=0.02)
    tests = planted.page(STEM, planted.evidence(check, *rows("triton"), *peer)).text
    named = "FlashAttention-4 at d_head 80, FlashAttention-4 at d_head 128 in a timed call."
    assert f"timed rows failed their check, {named}" in tests


def test_case_that_raised_is_no_failed_timed_call():
    raised = {"status": "failed_check", "ms": None, "reason": "result without a gradient"}
    peer = rows("flash_attention_4", widths=(64,))
    peer[-1] |= raised | {"error_bound": "", "max_error": ""}
    page = planted.page(STEM, planted.evidence(*rows("triton"), *peer))
    assert "passed before the timing" not in page.text


def test_lines_end_in_signs_deterministic_ones_in_backward():
    made = [*rows("triton"), *rows("triton_deterministic"), *rows("flash_attention_4")]
    slowed = [row | {"marks": "capped"} for row in rows("flash_attention_4_deterministic")]
    values = part(*made, *slowed).figures["flash_attention"]["data"]["values"]
    ends = {
        (one["panel"].partition(",")[0], one["name"]): one["end"] for one in values if one["end"]
    }
    again = "lmperf's kernel, deterministic", "FlashAttention-4, deterministic"
    assert {("forward", name) for name in again}.isdisjoint(ends)
    assert [ends["backward", name] for name in again] == ["400", "400ᶜ"]


@pytest.mark.parametrize(
    ("backward", "said"),
    [(2.0, "Use SDPA here."), (0.1, "use SDPA for the forward alone, PyTorch to")],
)
def test_advice_on_a_cpu_depends_on_the_passes(backward, said):
    factors = {"forward": 3.0, "backward": backward, "forward_backward": 1.0}
    made = [*rows("tiled", 3.0), *rows("sdpa"), *rows("eager", factors)]
    here = planted.evidence(*made, facts={"kind": "cpu", "device": "a CPU"})
    assert said in planted.page(PART, here).text


def test_rates_of_the_first_table_stand_in_f3():
    made = [*rows("triton"), *rows("sdpa_cudnn"), *rows("eager")]
    page = planted.page(STEM, planted.evidence(*made))
    names = {column.name for table in page.tables if table.id == "F3" for column in table.columns}
    assert {"triton.tflops", "sdpa_cudnn.tflops", "eager.tflops"} <= names


@pytest.mark.parametrize(
    ("ran", "expected"), [("forward, backward", True), ("backward", False), (None, False)]
)
def test_causes_need_the_gluon_kernels(ran, expected):
    factors = {"forward": 0.5, "backward": 2.0, "forward_backward": 1.0}
    page = part(*rows("triton", factors, gluon=ran), *rows("sdpa_cudnn"))
    assert ("one warp loads tiles" in page.text) == expected
    assert ("adds its part of dQ to memory" in page.text) == expected
    assert ("Gluon" in page.text) == expected


@pytest.mark.parametrize(("ms", "said"), [(100.0, "on par (1.00x)"), (80.0, "1.25x")])
def test_gain_inside_a_step_is_said_beside_that_of_calls(ms, said):
    steps = sdpa(100.0), step("0.97B", AUTOCAST, "triton_compiled_blocks", ms)
    page = part(*rows("triton", gluon="forward, backward"), *rows("sdpa_cudnn"), *steps)
    assert f"in place of SDPA's, all else equal: {said} at large" in page.text


@pytest.mark.parametrize("d_head", [64, 128])
def test_atomic_additions_are_said_of_wide_heads_alone(d_head):
    ran = rows("triton", widths=(d_head,), gluon="forward, backward")
    here = planted.evidence(*ran, *rows("sdpa_cudnn", widths=(d_head,)))
    assert section(here, STEM).adds_atomically is (d_head == 128)
    assert ("atomically" in planted.page(PART, here).text) is (d_head == 128)


@pytest.mark.parametrize("page", [PART, STEM])
def test_atomic_additions_are_said_without_a_peer(page):
    ran = rows("triton", widths=(128,), gluon="forward, backward")
    assert "differ from run to run" in planted.page(page, planted.evidence(*ran)).text


@pytest.mark.parametrize("fault", ["forward: CompilationError: no such layout", None])
def test_page_says_why_the_gluon_kernels_did_not_run(fault):
    page = planted.page(STEM, planted.evidence(*rows("triton", gluon_fault=fault)))
    said = f"kernels in Triton's own language ran ({fault})"
    assert (said in page.text) == (fault is not None)


@pytest.mark.parametrize(
    ("tflops", "gbps", "said"),
    [
        (
            790,
            2000,
            "Memory does not limit the kernel (filled grid, bf16): at least 400 FLOPs per byte",
        ),
        (700, 1500, "Memory limits the kernel (filled grid, bf16): at most 400 FLOPs per byte"),
        (820, 2000, "Neither FLOPs nor bytes bound the kernel"),
    ],
)
def test_bound_follows_the_ceilings(tflops, gbps, said):
    made = [*rows("triton"), *ceilings(tflops, gbps)]
    assert any(one.startswith(said) for one in planted.page(STEM, planted.evidence(*made)).said)


@pytest.mark.parametrize(
    ("factor", "times", "expected"), [(2, 10, True), (0.5, 10, False), (2, 0.5, False)]
)
def test_float32_is_better_if_faster_and_no_less_exact(factor, times, expected):
    tensors = ("error_out", "error_dq", "error_dk", "error_dv")
    exact = {"flops": 1e9, "error_bound": 1.0, "max_error": 1e-4, **dict.fromkeys(tensors, 1e-4)}
    rough = {**exact, **dict.fromkeys(tensors, 1e-4 * times)}
    made = rows("triton", dtype="float32", **exact)
    made += rows("triton", factor, dtype="tf32", **rough)
    page = planted.page(STEM, planted.evidence(*made))
    assert ("prefer float32*" in page.text) == expected


def test_errors_without_tf32_are_not_compared():
    checked = {"dtype": "float32", "error_bound": 1.0, "max_error": 1e-4, "error_out": 1e-4}
    page = planted.page(STEM, planted.evidence(*rows("triton", **checked)))
    assert "slower in TF32" not in page.text and any(table.id == "F4" for table in page.tables)


def test_deterministic_kernels_are_compared_with_each_other():
    made = rows("triton", widths=(64,)), rows("triton_deterministic", 1.1, widths=(64,))
    made = *made, rows("flash_attention_4_deterministic", 1.21, widths=(64,))
    page = planted.page(STEM, planted.evidence(*itertools.chain(*made)))
    (said,) = [finding for finding in page.said if finding.startswith("With the same bits")]
    assert "1.10x (faster in all 6) at d_head 64" in said
    assert "default backward 0.91x (slower in all 6) at d_head 64" in said
    headers = {column.header for table in page.tables for column in table.columns}
    assert not any(header.startswith("over FlashAttention-4, det") for header in headers)
