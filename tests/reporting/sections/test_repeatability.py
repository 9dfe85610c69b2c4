"""Second times stand beside the first ones, by kind of row."""

import planted
import pytest
from planted_steps import step

from lmperf.reporting.sections import section
from lmperf.reporting.sections.repeatability import STEP
from lmperf.reporting.words import NotMeasured


def twice(row, factor):
    """A row and its second measurement, so many times as long."""
    again = {}
    for name, text in row.items():
        times = text.split(";") if name.endswith("_ms") and text else []
        again[name] = ";".join(str(float(of) * factor) for of in times) or text
    return row, again


def kernel(ms):
    return planted.row("lrpe", ms)


def made(*pairs):
    rows = [first for first, _ in pairs]
    again = {}
    for first, second in pairs:
        again.setdefault(first["stem"], []).append(second)
    return section(planted.evidence(*rows, again=again), "repeatability")


def a_step(**values):
    return step("0.97B", "float32", "eager", 50.0, **values)


def test_second_times_of_earlier_rows_are_left_out():
    first, again = twice(a_step(), 1.01)
    assert made((first, again | {"key": "f" * 16})).of_kind(STEP).empty


def test_speedups_of_sound_steps_measured_twice():
    pairs = []
    for context, apart in ((256, 1.01), (512, 1.02), (1024, 1.0)):
        base = a_step(context_length=context)
        other = step("0.97B", "float32", "sdpa", 40.0, context_length=context)
        pairs += [twice(base, 1.1), twice(other, 1.1 / apart)]
    assert made(*pairs).speedups == (pytest.approx(0.02), 3)
    rows = [first for first, _ in pairs]
    again = {"end_to_end": [second for _, second in pairs]}
    of = planted.evidence(*rows, again=again, stale=frozenset({rows[0]["key"]}))
    with pytest.raises(NotMeasured):
        assert section(of, "repeatability").speedups  # one of the three is over a stale row


def test_difference_is_that_of_its_kind():
    steps = [twice(a_step(), factor) for factor in (1.01, 0.95, 1.02)]
    found = made(*steps, twice(kernel(1.0), 2.0))
    assert found.apart(STEP).high == pytest.approx(1 / 0.95 - 1)


@pytest.mark.parametrize(("gpus", "said"), [("GPU-2", True), ("GPU-1", False), ("", False)])
def test_second_times_on_other_gpus_are_counted(gpus, said):
    first, again = twice(kernel(1.0) | {"gpus": "GPU-1"}, 1.0)
    of = planted.evidence(first, again={"lrpe": [again | {"gpus": gpus}]})
    text = planted.page("method", of).text
    assert ("In 1 of 1 pairs the second ran on another one" in text) is said
    letters = {"GPU-2": " 1, 2 |", "GPU-1": " 1, 1 |", "": " 0.0 % |\n"}[gpus]
    assert letters in text


def test_first_page_says_how_far_two_gpus_are_apart():
    waited, again = twice(a_step(context_length=512), 1.3)
    pairs = [(waited, again | {"bound": "host"})]  # says of the CPU, not of the GPU
    pairs += [twice(a_step(), factor) for factor in (1.015, 1.001, 1.002)]
    pairs += [twice(kernel(1.0), 1.008)] * 2
    # Nor do steps that waited the first time.
    waiting = [twice(a_step(context_length=n, waits=True), 1.4) for n in (64, 128, 256)]
    pairs += [(first, again | {"bound": "device"}) for first, again in waiting]
    stale = frozenset({pairs[1][0]["key"]})
    for gpu, old, said in (("GPU-2", (), True), ("GPU-1", (), False), ("GPU-2", stale, False)):
        again = {"end_to_end": [], "lrpe": []}
        for first, second in pairs:
            again[first["stem"]].append(second | {"gpus": gpu})
        rows = [first for first, _ in pairs]
        of = planted.evidence(*rows, again=again, stale=frozenset(old))
        text = planted.page("report", of).text
        words = (
            "on another one than before, steps differ by 0.2 % in the median and 1.5 % at most (3"
        )
        assert (words in text) is said
        between = text.partition("on another one than before")[2].partition("\n")[0]
        assert "wait for the CPU by" not in between


def test_first_page_says_once_that_second_times_are_of_other_gpus():
    pairs = [twice(a_step(), factor) for factor in (1.015, 1.001, 1.002)]
    again = {"end_to_end": [second | {"gpus": "GPU-2"} for _, second in pairs]}
    text = planted.page("report", planted.evidence(*(one for one, _ in pairs), again=again)).text
    assert "in a new process on another GPU" in text and "on another one than before" not in text


def test_first_page_names_the_rows_that_differ_most():
    pairs = [twice(a_step(), factor) for factor in (1.015, 1.001, 1.002)]
    message = {"operation": "all_reduce", "message_bytes": 10_000_000, "ranks": 2}
    pairs += [twice(planted.row("collectives", 1.0, **message), of) for of in (1.0, 1.1, 1.0)]
    again = {"end_to_end": [], "collectives": []}
    for first, second in pairs:
        again[first["stem"]].append(second)
    text = planted.page("report", planted.evidence(*(one for one, _ in pairs), again=again)).text
    assert "10.0 % at most (all-reduce, 10 MB; 3 pairs)" in text
    assert "1.5 % (eager, large; 3)" in text


def test_rows_of_several_benchmarks_are_named_in_words():
    message = planted.row("collectives", 1.0, operation="all_reduce", message_bytes=10_000_000)
    found = made(twice(a_step(context_length=1024), 1.0), twice(message, 1.0)).lines.frame
    assert [*found["cell"]] == [
        "size large, context 1,024, batch 4, float32: eager, train step",
        "operation all-reduce, float32, message 10 MB, ranks 2: torch.distributed, forward",
    ]


@pytest.mark.parametrize("waits", [True, False])
def test_italic_times_are_spoken_of_where_one_is_printed(waits):
    text = planted.page("report", planted.evidence(a_step(waits=waits))).text
    assert ("Compare italic times" in text) is waits
