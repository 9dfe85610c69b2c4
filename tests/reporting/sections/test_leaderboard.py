"""Table E8 and the finding on a public leaderboard's train step."""

from finding_checks import assert_answers_reached
from step_evidence import with_rows
from synthetic import gpu_evidence

from lmperf.reporting.findings import state
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.end_to_end import leaderboard


def slower(factor: float):
    """A function that makes evidence with all steps slower by a factor."""

    def evidence():
        made = gpu_evidence()
        frame = made.frames["leaderboard"]
        return with_rows(made, frame.assign(median_ms=factor * frame["median_ms"]), "leaderboard")

    return evidence


def sentence(evidence) -> str:
    return state(leaderboard.FINDING, evidence).sentence


def test_finding_gives_every_declared_answer():
    cases = {"leaderboard": {"beats": gpu_evidence, "behind": slower(1.5)}}
    assert_answers_reached((leaderboard.FINDING,), cases)


def test_finding_names_the_fastest_step_and_the_published_ones():
    said = sentence(gpu_evidence())
    assert "takes 9." in said and "on one NVIDIA H200" in said and "128 GiB" in said
    assert "less than the 10 s of a public leaderboard's baseline on two B200s" in said
    assert "(best there: 3.84 s)" in said and "1.19x as fast as recomputing every block" in said


def test_finding_is_silent_without_rows(gpu_copy):
    del gpu_copy.frames["leaderboard"]
    assert state(leaderboard.FINDING, gpu_copy) is None


def test_table_e8_compares_steps_with_full_recomputation(gpu):
    (table,) = compose("end_to_end", gpu, drawn=False).parts["E8"]
    frame = table.frame.set_index("implementation")
    assert frame.loc["attention kept", "over recomputing all"].startswith(("1.16x", "1.17x"))
    kept = frame.loc["attention and some matmuls kept"]
    assert kept["blocks that keep matmuls"] == 9 and kept["peak memory (GiB)"] == "128"
    assert float(kept["rate (TFLOP/s)"]) > 490 and "two B200s" in table.notes


def test_step_that_does_not_fit_has_dashes(gpu):
    frame = gpu.frames["leaderboard"]
    failed = frame["implementation"] == "keep_attention"
    lost = ["median_ms", "peak_mib", "matmul_blocks"]
    frame = frame.assign(**{name: frame[name].mask(failed) for name in lost})
    frame = frame.assign(status=frame["status"].mask(failed, "oom"))
    made = with_rows(gpu, frame, "leaderboard")
    (table,) = compose("end_to_end", made, drawn=False).parts["E8"]
    (line,) = table.frame[table.frame["implementation"] == "attention kept"].to_dict("records")
    assert line["step (ms)"].startswith("OOM") and line["blocks that keep matmuls"] == "–"


def note_of(evidence) -> str:
    (table,) = compose("end_to_end", evidence, drawn=False).parts["E8"]
    return table.notes


def test_note_calls_no_long_step_a_burst_and_says_what_mfu_is_over(gpu):
    note = note_of(gpu)
    assert note.startswith("Each step lasts seconds") and "Burst" not in note
    assert "without recomputation; MFU of 990 TFLOP/s by the data sheet, in bf16." in note


def test_note_gives_the_clock_only_if_all_steps_were_held_back(gpu):
    frame = gpu.frames["leaderboard"].assign(clock_mhz=[1500.0, 1515.0, 1510.0])
    held = frame.assign(throttle="0x4")
    words = "held the clock at 1,500 to 1,515 MHz"
    assert words in note_of(with_rows(gpu, held, "leaderboard"))
    held.loc[held.index[0], "throttle"] = "0x0"
    assert "held the clock" not in note_of(with_rows(gpu, held, "leaderboard"))
