"""Tests of the progress of a benchmark, as lines in a log."""

from lmperf.measuring.forecast import Forecast
from lmperf.measuring.progress import Reporter


def lines_of(log):
    return [line.partition(" ")[2] for line in log.read_text().splitlines()]


def test_each_group_is_a_line_with_the_time_left(tmp_path):
    now = [0.0]
    groups = [("attention", name, 1) for name in "abc"]
    forecast = Forecast("mps", groups, clock=lambda: now[0])
    log = tmp_path / "attention.log"
    with Reporter("attention", 3, log, forecast) as reporter:
        for _, name, _ in groups:
            now[0] += 30
            reporter.finished(f"{name}: 2 ok")
    assert lines_of(log) == [
        "[attention] 3 groups to measure",
        "[attention] 1 of 3 groups, about 1 min left: a: 2 ok",
        "[attention] 2 of 3 groups, about 30 s left: b: 2 ok",
        "[attention] 3 of 3 groups: c: 2 ok",
    ]


def test_progress_without_a_forecast_shows_no_time(tmp_path):
    log = tmp_path / "compare.log"
    with Reporter("compare", 1, log, unit="case") as reporter:
        reporter.finished("seq_len=256: faster")
    assert lines_of(log) == [
        "[compare] 1 case to measure",
        "[compare] 1 of 1 case: seq_len=256: faster",
    ]
