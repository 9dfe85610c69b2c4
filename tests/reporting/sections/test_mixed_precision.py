"""Report section on mixed precision: sums in low precision, and dtypes seen under autocast.

The head table is the one table of the section in the write-up; M1 and M2 are tables on its page.
"""

import pandas as pd
import synthetic
from finding_checks import assert_answers_reached

from lmperf.reporting.coverage import gaps, states
from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.mixed_precision import FINDINGS, SECTION

UPCAST = "float32 + float32(bfloat16)"


def with_changed_rows(change=None):
    """GPU evidence with one more sum, UPCAST, and with ``change(frame)`` applied in place."""
    evidence = synthetic.gpu_evidence()
    frame = evidence.frames["mixed_precision"]
    upcast = frame[frame["subject"] == "float32 + bfloat16"].assign(subject=UPCAST)
    frame = pd.concat([frame, upcast], ignore_index=True)
    if change:
        change(frame)
    evidence.frames["mixed_precision"] = frame
    return evidence


def with_observed_dtype(seen, **where):
    """A function that makes evidence with ``seen`` as the dtype of the tensors in ``where``."""

    def change(frame):
        wanted = frame["tensor"].notna()
        for column, given in where.items():
            wanted &= frame[column] == given
        frame.loc[wanted, "observed_dtype"] = seen

    return lambda: with_changed_rows(change)


def with_kernel_times(part, ms):
    """Evidence in which kernels with ``part`` in their names take ``ms`` under autocast."""
    evidence = with_changed_rows()
    frame = evidence.frames["profiles"]
    rows = frame["name"].str.contains(part, regex=False, na=False)
    frame.loc[rows & (frame["dtype"] == "autocast_bfloat16"), "total_ms"] = ms
    return evidence


OF_ANOTHER = with_observed_dtype(
    "float16", kind="logits", dtype="bfloat16", implementation="compiled"
)
CASES = {
    "accumulator": {
        "stuck": with_changed_rows,
        "is": lambda: with_changed_rows(
            lambda frame: frame.replace({"value": {4.0: 1.0}}, inplace=True)
        ),
    },
    "autocast_casts": {
        "both": lambda: with_kernel_times("Memcpy", 9.0),
        "is": with_changed_rows,
    },
    "autocast_keeps": {
        "all": with_changed_rows,
        "some": with_observed_dtype("float16", kind="gradient", implementation="compiled"),
    },
    "autocast_logits": {"is": OF_ANOTHER},
}


def sentence_of(name, evidence):
    finding = next(finding for finding in FINDINGS if finding.name == name)
    return state(finding, evidence).sentence


def toy_table(evidence):
    return compose("mixed_precision", evidence).parts["M2"][0].frame.set_index("tensor")


def test_findings_give_every_declared_answer():
    assert_answers_reached(FINDINGS, CASES)


def test_head_table_has_one_line_per_sum_in_benchmark_order():
    table = SECTION.head(with_changed_rows()).frame
    assert table["accumulator + addend"].tolist()[:2] == ["float32 + float32", "float16 + float16"]
    assert table["accumulator + addend"].tolist()[-1] == UPCAST
    assert table.iloc[1].tolist() == ["float16 + float16", "9.9531", "-0.469 %"]


def test_finding_names_modules_observed_in_float32():
    sentence = sentence_of("autocast_keeps", with_changed_rows())
    assert "`ln`, `attention_norm` and `block`" in sentence
    torn = sentence_of(
        "autocast_keeps", with_observed_dtype("float16", tensor="ln", dtype="float16")()
    )
    assert "except `ln`, where runs differ" in torn


def test_accumulator_finding_states_the_sums():
    assert sentence_of("accumulator", with_changed_rows()) == (
        "A bf16 sum of 1,000 times 0.01 ends at 4.0000. From there on bf16 values are 0.0312 apart,"
        " so that adding 0.01 changes nothing: accumulate in float32."
    )


def test_casts_finding_compares_steps_without_and_with_autocast():
    def change(frame):
        steps = (frame["phase"] == "train_step") & (frame["implementation"] == "eager")
        frame.loc[steps, "total_ms"] = 0.0
        for part, dtype, ms in (
            ("gemm", "float32", 90.0),
            ("gemm", "autocast_bfloat16", 9.0),
            ("Memcpy", "float32", 2.0),
            ("Memcpy", "autocast_bfloat16", 5.0),
        ):
            named = frame["name"].str.contains(part, regex=False, na=False)
            first = frame.index[
                steps & named & (frame["dtype"] == dtype) & (frame["size"] == "large")
            ]
            frame.loc[first[:1], "total_ms"] = ms

    evidence = with_changed_rows()
    change(evidence.frames["profiles"])
    sentence = sentence_of("autocast_casts", evidence)
    assert "matmuls from 90.0 to 9.00 ms (large, context 512)" in sentence
    assert "Copies and casts rise from 2.00 to 5.00 ms" in sentence


def test_logits_in_an_unexpected_dtype_are_reported():
    assert "are float16 under bf16 autocast. Possibly" in sentence_of(
        "autocast_logits", OF_ANOTHER()
    )
    assert "except `logits`, where runs differ" in sentence_of("autocast_keeps", OF_ANOTHER())
    assert state(FINDINGS[-1], with_changed_rows()) is None


def test_eager_and_compiled_share_a_column_if_equal():
    agreed = "bf16 autocast (PyTorch and compiled)"
    assert toy_table(with_changed_rows())[agreed]["logits"] == "bf16"
    apart = toy_table(OF_ANOTHER())
    assert agreed not in apart
    assert apart["bf16 autocast (PyTorch)"]["logits"] == "bf16"
    assert apart["bf16 autocast (compiled)"]["logits"] == "float16"
    assert apart["float16 autocast (PyTorch and compiled)"]["fc1"] == "float16"


def test_eager_dtypes_are_shown_without_a_compiler():
    def change(frame):
        rows = frame["implementation"] == "compiled"
        frame.loc[rows, ["status", "reason", "tensor"]] = ["unsupported", "no C compiler", None]

    evidence = with_changed_rows(change)
    assert list(toy_table(evidence).columns) == [
        "kind",
        "float16 autocast (PyTorch)",
        "bf16 autocast (PyTorch)",
    ]
    assert "no C compiler" in compose("mixed_precision", evidence).reasons


def test_coverage_counts_only_the_cells_of_each_table():
    evidence = with_changed_rows()
    found = states(evidence, [compose("mixed_precision", evidence)])
    assert [(s.table.id, s.measured) for s in found] == [("M1", 7), ("M2", 8)]
    assert gaps(found) == []


def test_section_works_with_one_of_two_experiments():
    evidence = with_changed_rows()
    frame = evidence.frames["mixed_precision"]
    evidence.frames["mixed_precision"] = frame[frame["experiment"] == "dtypes"]
    composed = compose("mixed_precision", evidence)
    assert composed.head is None and not composed.parts["M1"]
    assert [s.name for s in composed.statements] == ["autocast_casts", "autocast_keeps"]
