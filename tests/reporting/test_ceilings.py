"""Ceilings (highest measured matmul and copy rates) and rows withheld for exceeding them.

The load of a ceiling is "burst" (a single call) or "sustained" (calls back to back).
"""

from dataclasses import replace

import pytest

from lmperf.evidence.plausible import KIND, floor_ms, limits_of
from lmperf.reporting import gates
from lmperf.reporting.ceilings import SUSTAINED, ceilings, matmul_ceiling, matmul_share, sheet_share
from lmperf.reporting.evidence import having
from lmperf.reporting.findings import statements
from lmperf.reporting.markdown import markdown
from lmperf.reporting.sections.method import SECTION, ceilings_table, sheet_table
from lmperf.reporting.tables import IMPOSSIBLE_WORDS, kernel_times


def without_loads(evidence):
    """The evidence in its earlier form, without shapes and loads of ceilings."""
    frame = evidence.frames["ceilings"]
    frame = having(frame, operation=["matmul", "copy"], load="burst")
    frame = frame.drop_duplicates(["operation", "dtype"], keep="last")
    frame = frame.drop(columns=["shape", "load", "calls"])
    return replace(evidence, frames={**evidence.frames, "ceilings": frame})


def with_time_divided(evidence, stem, factor):
    """The evidence with the median of one valid row divided by ``factor``, and the row's index."""
    frame = evidence.frames[stem].copy()
    row = having(frame, status="ok", dtype="bfloat16").index[0]
    frame.loc[row, "median_ms"] /= factor
    return replace(evidence, frames={**evidence.frames, stem: frame}), row


def test_ceiling_is_the_rate_of_the_best_shape_per_load(gpu):
    assert matmul_ceiling(gpu, "autocast_bfloat16") == 800
    assert matmul_ceiling(gpu, "autocast_bfloat16", SUSTAINED) == 720
    assert ceilings(gpu)["copy", "float32"] == 4280


def test_ceilings_without_a_load_count_for_both_loads(gpu):
    old = without_loads(gpu)
    assert matmul_ceiling(old, "bfloat16") == matmul_ceiling(old, "bfloat16", SUSTAINED) == 800
    table = ceilings_table(old).frame
    assert "shape" not in table and "sustained TFLOP/s" not in table
    assert not any(gates.impossible(frame).any() for frame in old.present().values())


def test_shares_use_the_burst_sustained_or_data_sheet_rate(gpu, cpu):
    frame = gpu.frame("end_to_end").assign(dtype="bfloat16", flops=80e9, median_ms=1.0)
    assert matmul_share(gpu, frame).iloc[0] == pytest.approx(0.1)
    assert matmul_share(gpu, frame, SUSTAINED).iloc[0] == pytest.approx(80 / 720)
    assert sheet_share(gpu, frame).iloc[0] == pytest.approx(80 / 989.5)
    assert sheet_share(cpu, cpu.frame("end_to_end")).isna().all()


def test_table_shows_rates_and_clocks_of_both_loads_per_shape(gpu, cpu):
    table = ceilings_table(gpu).frame
    line = having(table, operation="matmul", dtype="bf16", shape="8192x8192x8192").iloc[0]
    assert (line["TFLOP/s"], line["clock (MHz)"]) == ("800", "1980")
    assert (line["sustained TFLOP/s"], line["its clock (MHz)"]) == ("720", "1710")
    copies = table[table["operation"].str.startswith("copy")]
    assert list(copies["read + write (GB/s)"]) == ["4,280", "4,152", "4,366"]
    assert having(table, operation="empty launch")["time (ms)"].iloc[0].startswith("0.00250")
    assert "989.5" in markdown(sheet_table(gpu)) and "H200" in markdown(sheet_table(gpu))
    assert sheet_table(cpu) is None


def test_balance_finding_states_single_and_sustained_rates(gpu):
    said = next(str(s) for s in statements(SECTION.findings, gpu) if s.name == "balance")
    assert "800 TFLOP/s in bf16 in single calls, and back to back at 46.8 in float32" in said
    old = next(
        str(s) for s in statements(SECTION.findings, without_loads(gpu)) if s.name == "balance"
    )
    assert "back to back" not in old


def test_least_times_of_a_frame_equal_those_of_single_rows(gpu):
    limits = limits_of(gpu.frames["ceilings"].to_dict("records"), gpu.facts["environments"])
    for stem in ("end_to_end", "flash_attention", "lrpe"):
        frame = gpu.frame(stem)
        floors = [floor_ms(limits, row) for row in frame.to_dict("records")]
        assert list(frame["floor_ms"]) == floors and len(set(floors)) > 3


def test_impossibly_fast_row_is_withheld_and_named(gpu):
    assert not any(gates.impossible(frame).any() for frame in gpu.present().values())
    evidence, row = with_time_divided(gpu, "flash_attention", 1e3)
    frame = evidence.frame("flash_attention")
    assert gates.red(frame)[row] and not gates.shown(frame)[row]
    assert kernel_times(frame)[row].words == IMPOSSIBLE_WORDS
    (name,) = gates.summary(frame).red
    assert KIND in name and ", the least possible is " in name
    assert gates.gated(frame)[row]


def test_row_slightly_above_the_ceiling_is_shown(gpu):
    frame = gpu.frames["flash_attention"].copy()
    row = having(frame, status="ok", dtype="bfloat16", implementation="triton").index[-1]
    frame.loc[row, "median_ms"] = frame.loc[row, "flops"] / 1.02 / 800 / 1e9
    evidence = replace(gpu, frames={**gpu.frames, "flash_attention": frame})
    assert gates.shown(evidence.frame("flash_attention"))[row]


def test_sustained_rate_of_a_capped_row_has_a_mark(gpu):
    frame = gpu.frames["ceilings"].copy()
    frame.loc[having(frame, load=SUSTAINED).index, "marks"] = "capped"
    table = ceilings_table(replace(gpu, frames={**gpu.frames, "ceilings": frame})).frame
    line = having(table, operation="matmul", dtype="bf16", shape="8192x8192x8192").iloc[0]
    assert line["sustained TFLOP/s"] == "720ᶜ" and "ᶜ" not in line["time (ms)"]
