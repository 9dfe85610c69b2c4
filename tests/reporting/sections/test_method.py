"""The page that explains the measuring method: findings, constants of the code, length."""

from dataclasses import replace

import pytest
import synthetic
from finding_checks import assert_answers_reached

from lmperf.attention import rounding
from lmperf.attention.accuracy import error_bound
from lmperf.evidence import keys
from lmperf.measuring import clock_settings, rounds, state, sustained, twins
from lmperf.reporting import pages, stated
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.method import SECTION, sizes_table
from lmperf.transformer.sizes import SIZES

# About two printed pages.
MOST_WORDS = 1700


def page(evidence, has_reference=True):
    """The text of the method page without its tables.

    has_reference: whether each row has the time of the reference cell, which is measured again
        and again to detect drift; evidence of earlier versions lacks it.
    """
    new = {"reference": 1.0} if has_reference else {}
    frames = {stem: frame.assign(**new) for stem, frame in evidence.frames.items()}
    copy = synthetic.with_frames(evidence, **frames)
    composed = compose("method", copy, drawn=False)
    composed = replace(composed, section=replace(composed.section, tables=()))
    return pages.page(copy, composed, synthetic.TEMPLATES)


def without(evidence, stem):
    copy = synthetic.with_frames(evidence)
    del copy.frames[stem]
    return copy


def evidence_with(**changes):
    def make():
        made = synthetic.cpu_evidence()
        for name, value in changes.items():
            getattr(made, name)["attention"] = value
        return made

    return make


def evidence_with_columns(**columns):
    def make():
        made = synthetic.cpu_evidence()
        made.frames["attention"] = made.frames["attention"].assign(**columns)
        return made

    return make


def evidence_repeated(kernels="", steps=""):
    """Evidence with second times of kernels and steps that have these marks."""

    def make():
        made = synthetic.cpu_evidence()
        for stem, marks in (("attention", kernels), ("end_to_end", steps)):
            frame = made.frames[stem]
            made.repeats[stem] = frame[frame["status"] == "ok"].head(4).assign(marks=marks)
        return made

    return make


@pytest.mark.slow
def test_findings_give_every_declared_answer():
    assert_answers_reached(
        SECTION.findings,
        {
            "repeatability": {
                "all": evidence_repeated(),
                "some_marked": evidence_repeated(steps="loaded"),
                "unknown": evidence_repeated("drift", "loaded"),
            },
            "limits": {
                "stale": evidence_with(stale=["a row"]),
                "missing": evidence_with(missing=["a row"]),
                "red": evidence_with_columns(status="failed_check", marks="loaded"),
                "loaded": evidence_with_columns(marks="capped;loaded"),
                "marks": evidence_with_columns(marks="capped"),
                "none": synthetic.cpu_evidence,
            },
            "balance": {"is": synthetic.cpu_evidence},
        },
    )


def test_page_fits_two_printed_pages_with_all_parts(gpu):
    text = page(gpu)
    assert len(text.split()) <= MOST_WORDS
    parts = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert parts == [
        *("Clock", "Inputs", "Repetition", "Statistics", "State of the machine"),
        *("FLOPs and shares of a ceiling", "What is never concluded", "Gates", "Guards", "Keys"),
    ]


# (module, name of a constant, another value for it, words that the page then contains).
STATED = [
    (clock_settings, "FLUSH_BYTES", 5 * 2**20, "5 MiB are overwritten"),
    (clock_settings, "SHORTEST_LEAD_MS", 0.7, "0.7 ms at first"),
    (clock_settings, "LONGEST_LEAD_MS", 77.0, "a wait of 77 ms"),
    (clock_settings, "HOST_CALLS", 71, "median of 71"),
    (clock_settings, "LOOP_CALLS", 72, "72 at most"),
    (clock_settings, "OUTLIVES_MS", 0.73, "busy 0.73 ms"),
    (clock_settings, "OUTLIVES_FOUND", 74, "74 times in a row"),
    (rounds, "LEAST_ROUNDS", 75, "After 75 rounds"),
    (rounds, "LOOKS", (6, 76, 79), "after 76 and 79"),
    (rounds, "CHECKED_ROUNDS", 0.77, "In 77 % of the rounds"),
    (state, "DRIFT", {"cuda": 0.78}, "than usual by more than 78 %"),
    (state, "SLOW_HOST", {"cuda": 0.73}, "than its best by more than 73 %"),
    (sustained, "LEAST_S", 86.0, "steps and 86 s"),
    (sustained, "LEAST_STEPS", 87, "at least 87 steps"),
    (twins, "MOST_GROUPS", 88, "In up to 88 groups"),
    (state, "LOADED", {"cuda": 0.79}, "79 % of the cores"),
    (rounding, "BLOCK", 81, "block of 81"),
    (rounding, "ROUNDOFFS_OF_ROUNDED_SCORES", 82, "by 82 ("),
    (stated, "UNKNOWN_FLOOR", 0.87, "the floor is 87 % or more"),
    (stated, "HOST_BOUND", 0.89, "needs more than 89 %"),
    (stated.at_work, "MOST", 0.72, "affect more than 72 % of a benchmark"),
    (stated.consistent, "SHARE_OF_COPY", 1.71, "above 171 % of a copy's"),
    (stated.repeatability, "ROWS", 95, "95 rows, the same in every run"),
    (stated, "FLOPS_PER_FORWARD", {"train_step": 96}, "a train step 96 times that"),
    (stated, "FACTOR", 83.0, "off by 83 times"),
    (stated, "METHOD_VERSION", 84, "measuring code (84"),
]


def test_page_states_the_constants_of_the_code(gpu, monkeypatch):
    for module, name, value, _ in STATED:
        monkeypatch.setattr(module, name, value)
    text = " ".join(page(gpu).split())
    assert [words for *_, words in STATED if words not in text] == []


def test_page_states_the_times_set_for_the_device(gpu, monkeypatch):
    paces = {kind: rounds.Pace(91, 92, 93) for kind in (("kernel", "cuda"), ("step", "cuda"))}
    monkeypatch.setattr(rounds, "PACES", paces)
    text = " ".join(page(gpu).split())
    assert "(91 ms of kernels, 91 ms of steps)" in text
    assert (
        "some 92 ms of a kernel, 92 ms of a step)" in text and "after 93 s (93 s of steps)" in text
    )


@pytest.mark.slow
def test_page_states_error_bounds_of_the_measured_dtypes(gpu, cpu):
    bounds = "off by 256 unit roundoffs in float32 (1.5e-05)"
    assert f"{bounds}, 24 in TF32 (1.2e-02), 24 in float16 (1.2e-02), 6 in bf16" in page(gpu)
    assert bounds in page(cpu) and "TF32" not in page(cpu)
    assert "the logsumexp by 2.0e-05 (3.9e-03 in TF32)." in page(gpu)
    assert "the logsumexp by 2.0e-05. " in page(cpu)


def test_stated_bounds_of_the_logsumexp_are_those_of_the_gate():
    assert {name: error_bound("lse", name) for name in stated.LOGSUMEXP} == stated.LOGSUMEXP
    others = {error_bound("lse", name) for name in ("float16", "bfloat16")}
    assert others == {stated.LOGSUMEXP["float32"]}


def test_cpu_page_mentions_nothing_of_a_gpu(cpu):
    text = page(cpu)
    for word in ("event", "L2", "power", "queue", "throttl", "SM clock"):
        assert word not in text, word
    assert "by the wall clock." in text


def test_page_says_which_throttled_times_have_no_mark(gpu, cpu):
    unmarked = "Steps with a sustained time, leaderboard steps and sustained ceilings are never"
    assert unmarked in page(gpu) and unmarked not in page(cpu)


def test_unmeasured_benchmarks_are_not_explained(cpu):
    assert "**md_lrpe_cosine.**" in page(cpu)
    assert "**md_lrpe_cosine.**" not in page(without(cpu, "lrpe"))


@pytest.mark.slow
def test_ceilings_are_mentioned_only_if_measured(cpu):
    assert "Both were measured for this report" in page(cpu)
    assert "according to the ceilings measured here" in page(cpu)
    text = page(without(cpu, "ceilings"))
    assert "Neither was measured here" in text
    assert "according to the ceilings measured here" not in text


@pytest.mark.slow
def test_evidence_of_an_earlier_method_is_called_older(gpu):
    old = page(gpu, has_reference=False)
    assert "Older evidence" in old and f"version {keys.METHOD_VERSION}" in old
    assert "Older evidence" not in page(gpu)


def test_model_sizes_are_listed_with_their_names_per_course(gpu):
    lines = sizes_table(gpu).frame.set_index("parameters")
    assert list(lines) == ["this report", "course of 2025", "course of 2026"]
    assert [*lines.loc["0.13B"]] == ["small", "small", "small"]
    assert [*lines.loc["2.0B"]] == ["2.0B", "xl", "–"]
    assert [*lines.loc["3.4B"]] == ["3.4B", "2.7B", "xl"]
    assert [*lines.loc["12.8B"]] == ["12.8B", "–", "10B"]
    assert set(SIZES) - set(lines.index) == {"tiny"}


def test_model_sizes_are_not_listed_without_a_measured_model(gpu):
    made = synthetic.with_frames(gpu)
    for stem in [stem for stem, frame in made.frames.items() if "size" in frame]:
        del made.frames[stem]
    assert sizes_table(made) is None


@pytest.mark.machine
@pytest.mark.parametrize("rendered", ["cpu"], indirect=True)
def test_write_up_sums_the_method_up_in_seven_points(rendered):
    text = rendered[2]["report.md"]
    short = text[text.index("## Method") : text.index("Method](method.md).")]
    assert sum(line.startswith("- ") for line in short.splitlines()) == 7
    assert "Clock" not in short and len(short.splitlines()) <= 20
