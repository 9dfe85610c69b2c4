"""The ladder: a line a rung, what all rungs give, and what bf16 weights cost in loss."""

import re

from answers import check_answers
from steps import cells, edited, said, with_frame
from synthetic import cpu_evidence, gpu_evidence

from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import significant
from lmperf.reporting.sections.end_to_end import SECTION, ladder


def rung_slowed(evidence: MachineEvidence, factor: float, **where) -> MachineEvidence:
    """The evidence with the rounds of some rungs multiplied."""
    frame = evidence.frames[ladder.STEM].copy()
    rows = having(frame, **where).index
    frame.loc[rows, "rounds_ms"] = [
        ";".join(repr(float(ms) * factor) for ms in text.split(";"))
        for text in frame.loc[rows, "rounds_ms"]
    ]
    return with_frame(evidence, frame, ladder.STEM)


CASES = {
    "ladder": {
        "all": gpu_evidence,
        "some": lambda: rung_slowed(gpu_evidence(), 20, implementation="graph", size="small"),
        "none": lambda: rung_slowed(gpu_evidence(), 20, implementation="graph"),
    },
    "ladder_most": {
        "one": gpu_evidence,
        "by_size": lambda: rung_slowed(gpu_evidence(), 0.1, implementation="graph", size="small"),
        "none": lambda: with_frame(
            gpu_evidence(),
            having(gpu_evidence().frames[ladder.STEM], implementation=["float32", "tf32"]).pipe(
                lambda rows: rows.assign(rounds_ms="1.0;1.0;1.0;1.0;1.0;1.0;1.0")
            ),
            ladder.STEM,
        ),
    },
    "ladder_loss": {
        "near": gpu_evidence,
        "apart": lambda: edited(
            gpu_evidence(),
            {"loss": 9.0},
            ladder.LOSS,
            size="small",
            step=100,
            implementation="graph",
        ),
    },
}


def test_every_answer_is_reached():
    check_answers(ladder.FINDINGS, CASES)


def test_e6_has_a_line_a_rung_over_the_one_before_it(gpu):
    parts = {t.id: t for t in SECTION.tables}["E6"].make(gpu)
    assert [part.caption.split(", ", 1)[1] for part in parts] == [
        *("size small, context 1024, batch 4", "size small, context 1024, batch 64"),
        *("size large, context 1024, batch 4", "size large, context 1024, batch 16"),
        *("size 2.7B, context 1024, batch 4", "size 2.7B, context 1024, batch 8"),
    ]
    lines = parts[0].frame
    assert list(lines["implementation"])[:2] == ["float32", "TF32"] and len(lines) == 8
    graph = cells(parts[0], implementation="CUDA graph")
    assert graph["over the rung above"].startswith("1.49x (")
    assert graph["loss"] == "6.520" and "Loss: of step 100" in parts[0].notes
    for rung, line in ("graph", graph), ("float32", cells(parts[0], implementation="float32")):
        row = having(gpu.frame(ladder.STEM), size="small", batch=4, implementation=rung).iloc[0]
        mfu = row["flops"] / row["median_ms"] / 1e9 / 720
        assert line["MFU (%)"] == significant(100 * mfu), "of bf16's ceiling, in every line"
    row = having(gpu.frame(ladder.STEM), size="small", batch=4, implementation="graph").iloc[0]
    assert graph["peak memory (GiB)"] == significant((row["peak_mib"] + 1024) / 1024)
    assert cells(parts[1], implementation="flash attention")["over the rung above"] == "–"
    assert "loss" not in parts[1].frame and "Loss:" not in parts[1].notes, "of runs of one batch"


def test_a_rung_that_ran_out_of_memory_has_a_line_and_the_one_after_it_no_speedup(gpu):
    full = {"status": "oom", "requested_bytes": 2 * 2**30, "free_bytes": 2**30, "rounds_ms": None}
    failed = edited(gpu, full, ladder.STEM, size="small", batch=4, implementation="autocast")
    part = {t.id: t for t in SECTION.tables}["E6"].make(failed)[0]
    line = cells(part, implementation="bf16 autocast")
    assert line["step (ms)"].startswith("OOM") and line["peak memory (GiB)"] == "–"
    assert cells(part, implementation="compiled by block")["over the rung above"] == "–"


def test_the_whole_ladder_is_said_where_all_of_it_was_timed(gpu):
    sentence = said("ladder", gpu)
    assert "float32 to CUDA graph (context 1024): small 9.91x, large 10.0x" in sentence
    assert sentence.endswith("; MFU 57.7 to 57.8 %.")
    loss = said("ladder_loss", gpu)
    assert "within 0.26 %" in loss and loss.endswith(
        "of those with float32 weights, which are up to 0.05 % apart."
    )
    apart = said("ladder_loss", CASES["ladder_loss"]["apart"]())
    assert re.search(r"float32 weights, by \(the range\): small \+\d+\.\d % \(0\.\d\d %\)", apart)
    assert "bf16 weights" in said("ladder", cpu_evidence())
