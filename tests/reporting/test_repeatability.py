"""Table R1 and its sentence: how far the second times of rows are from the first."""

import pandas as pd
import pytest
import synthetic

from lmperf.evidence.repeatability import STEM
from lmperf.names import UNSETTLED
from lmperf.reporting import coverage, pages, repeatability
from lmperf.reporting.findings import TRUST, state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.method import SECTION

(FINDING,) = (finding for finding in SECTION.findings if finding.name == "repeatability")
KERNELS, STEPS = "attention", "end_to_end"


def repeated(evidence, by=(1.01,), host_share=0.5, rows=4, **second):
    """The evidence with second times of a few kernels and steps.

    Args:
        by: second time / first time of the steps, in turn; kernels take 0.5 % longer.
        host_share: host_ms / median_ms of the steps.
        rows: number of rows of each benchmark.
        second: columns of the second times of the steps.
    """
    steps = evidence.frames[STEPS]
    steps = steps.assign(host_ms=host_share * steps["median_ms"].astype(float))
    made = synthetic.with_frames(evidence, **{STEPS: steps})
    made.repeats = {
        KERNELS: again(made, KERNELS, [1.005], rows),
        STEPS: again(made, STEPS, by, rows),
    }
    made.repeats[STEPS] = made.repeats[STEPS].assign(**second)
    return made


def again(evidence, stem, by, rows):
    frame = evidence.frames[stem]
    frame = frame[frame["status"] == "ok"].head(rows).reset_index(drop=True)
    factors = [by[number % len(by)] for number in range(len(frame))]
    return frame.assign(median_ms=frame["median_ms"].astype(float) * factors)


def sustained(evidence, by):
    """The evidence with sustained times of the steps; the second ones are longer by a factor."""
    first = evidence.frames[STEPS].assign(sustained_ms=10.0)
    made = synthetic.with_frames(evidence, **{STEPS: first})
    made.repeats[STEPS] = made.repeats[STEPS].assign(sustained_ms=10.0 * by)
    return made


def sentence(evidence):
    found = state(FINDING, evidence)
    return found.sentence if found else None


def lines(evidence):
    table, *_ = repeatability.tables(evidence)
    return table.frame.set_index("times")


def test_sentence_names_every_kind_and_how_far_it_repeats(gpu):
    host = repeated(gpu, by=(1.109, 0.99), host_share=0.95)
    assert sentence(host) == ("Kernels repeat within 1 %, host-bound steps within 11 % (R1).")
    device = repeated(gpu, by=(0.985,))
    assert "device-bound steps within 2 %" in sentence(device)
    assert FINDING.place == TRUST


def test_cpu_has_kernels_and_steps(cpu):
    found = repeated(cpu, by=(1.035,), host_share=0.99)
    assert "Kernels repeat within 1 %, steps within 4 % (R1)." in sentence(found)
    assert list(lines(found).index) == ["kernels", "steps"]


def test_table_has_median_quantile_and_worst(gpu):
    made = repeated(gpu, by=(*[1.01] * 15, *[1.03] * 9, 1.08), rows=25)
    line = lines(made).loc["device-bound steps"]
    assert [*line] == [25, "1.0 %", "3.0 %", "8.0 %"]


def test_table_of_few_rows_lacks_the_quantile_that_is_their_worst(gpu):
    line = lines(repeated(gpu, by=(1.01, 1.02, 1.03, 1.08))).loc["device-bound steps"]
    assert [*line.index] == ["rows", "median", "worst"] and line["worst"] == "8.0 %"


def test_sustained_times_are_compared_too(gpu):
    made = sustained(repeated(gpu), by=1.06)
    assert lines(made).loc["device-bound steps, sustained", "worst"] == "6.0 %"
    assert "device-bound steps within 1 %" in sentence(made)
    assert repeatability.further(made) == ["Sustained steps repeat within 6 % (4 rows)."]
    _, each = repeatability.tables(made)
    assert "sustained, second (ms)" in each.frame


@pytest.mark.parametrize(
    ("gpu_of_second", "said"), [("GPU-a", False), ("GPU-b", True), ("", False)]
)
@pytest.mark.parametrize("only_steps", [False, True])
def test_rows_repeated_on_another_gpu_are_counted(gpu, gpu_of_second, said, only_steps):
    made = repeated(gpu, measured_at="2027-01-01T10:00:30Z")
    if only_steps:
        del made.repeats[KERNELS]
    made.cost = pd.DataFrame(
        {
            "stem": [STEPS, STEM],
            "gpus": ["GPU-a", gpu_of_second],
            "started_at": ["2020-01-01T00:00:00Z", "2027-01-01T10:00:00Z"],
            "finished_at": ["2026-12-31T00:00:00Z", "2027-01-01T11:00:00Z"],
        }
    )
    notes = repeatability.tables(made)[0].notes
    assert ("On another GPU the second time: 4 rows." in notes) == said
    number = "All" if only_steps else "4 of 8"
    trusted = [f"{number} second times are from another GPU."] if said else []
    assert repeatability.further(made) == trusted


def test_nothing_is_said_without_second_times(gpu):
    assert sentence(gpu) is None and repeatability.tables(gpu) == []
    sections = [compose("method", gpu, drawn=False)]
    text = pages.write_up(gpu, sections, synthetic.TEMPLATES)
    assert "Repeatability was not measured." in text.split("\n## ")[0]


def test_write_up_says_how_far_sustained_steps_repeat(gpu):
    few, enough = (sustained(repeated(gpu, rows=rows), by=1.041) for rows in (1, 3))
    assert not any("Sustained" in said for said in repeatability.further(few))
    text = pages.write_up(enough, [compose("method", enough, drawn=False)], synthetic.TEMPLATES)
    assert "Sustained steps repeat within 5 % (3 rows)." in text.split("\n## ")[0]


def test_too_few_rows_of_a_kind_are_not_in_the_sentence(gpu):
    made = repeated(gpu, rows=repeatability.LEAST_ROWS - 1)
    assert sentence(made) is None
    assert len(lines(made)) == 2


@pytest.mark.parametrize("mark", sorted(UNSETTLED))
@pytest.mark.parametrize("which", ["first", "second"])
def test_marked_rows_are_left_out_and_counted(gpu, mark, which):
    made = repeated(gpu, by=(1.5,))
    if which == "second":
        made = repeated(gpu, by=(1.5,), marks=f"capped;{mark}")
    else:
        made.frames[STEPS] = made.frames[STEPS].assign(marks=mark)
    assert sentence(made) == "Kernels repeat within 1 % (R1, without 4 disturbed steps)."
    assert "4 rows measured while the machine was at work" in repeatability.tables(made)[0].notes


def test_capped_rows_count(gpu):
    made = repeated(gpu, by=(1.02,), marks="capped")
    assert state(FINDING, made).values["rows"] == 8


def test_machine_at_work_says_that_repeatability_is_unknown(gpu):
    made = repeated(gpu, marks="loaded")
    made.repeats[KERNELS] = made.repeats[KERNELS].assign(marks="drift")
    said = sentence(made)
    assert said.startswith("How far times repeat is unknown: 8 rows measured twice were disturbed")
    (only,) = repeatability.tables(made)
    assert "Left out: 8 rows measured while" in only.notes


def test_first_time_that_ran_out_of_memory_is_left_out_and_counted(gpu):
    made = repeated(gpu)
    oom = {"status": "oom", "median_ms": None}
    made.frames[STEPS] = made.frames[STEPS].assign(**oom)
    assert state(FINDING, made).values["rows"] == 4
    assert "4 rows without two valid times" in repeatability.tables(made)[0].notes


@pytest.mark.parametrize("first", [{"status": "unchecked", "median_ms": None}, {"key": "other"}])
def test_second_time_is_shown_without_a_first_one(gpu, first):
    made = repeated(gpu)
    made.frames[STEPS] = made.frames[STEPS].assign(**first)
    _, each = repeatability.tables(made)
    steps = each.frame[each.frame["row"].str.startswith(STEPS)]
    assert set(steps["first (ms)"]) == {"–"} and "–" not in set(steps["second (ms)"])
    assert set(steps["apart"]) == {"–"} and set(steps["kind"]) == {"device-bound steps"}


def test_first_time_of_other_code_is_left_out_and_counted(gpu):
    made = repeated(gpu)
    made.frames[STEPS] = made.frames[STEPS].assign(key="other")
    assert "4 rows without a first time of the same code" in repeatability.tables(made)[0].notes
    del made.frames[STEPS]
    made.derived.clear()
    assert "4 rows without a first time of the same code" in repeatability.tables(made)[0].notes


def test_rows_that_were_not_repeated_are_counted(gpu):
    made = repeated(gpu)
    made.missing = {STEM: ["attention: a row", "ladder: a row"]}
    assert "2 rows not measured again" in repeatability.tables(made)[0].notes
    (line,) = (
        line
        for line in coverage.states(made, [compose("method", made, drawn=False)])
        if line.table.id == "R1"
    )
    assert (line.measured, line.owed, line.words) == (8, 10, "partly measured")


@pytest.mark.slow
def test_write_up_has_the_sentence_above_its_findings():
    made = repeated(synthetic.small_gpu_evidence())
    sections = pages.composed(made, synthetic.TEMPLATES, drawn=False)
    files = pages.machine_files(made, sections, synthetic.TEMPLATES)
    text = files["report.md"]
    assert text.index("Kernels repeat within") < text.index("## What to run")
    assert "[R1](method.md#r1-repeatability) Repeatability\n" in text
    assert "## R1. Repeatability" in files["method.md"]
