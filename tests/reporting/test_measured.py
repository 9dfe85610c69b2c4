"""Tables of rows that were measured now, as `lmperf run` and `lmperf try` print them."""

import planted

from lmperf.benchmarks import load
from lmperf.names import IMPLEMENTATIONS
from lmperf.reporting.formats import terminal
from lmperf.reporting.measured import failures, short_tables, tables

STEM = "flash_attention"


def rows(*of):
    return planted.evidence(
        *(planted.row(STEM, ms, implementation=name, phase="forward") for name, ms in of)
    )


def words(evidence, over=None):
    (table,) = tables(evidence, load(STEM), over)
    return {column.name: [cell.words for cell in column.cells] for column in table.columns}


def test_implementations_are_compared_with_each_other():
    found = words(rows(("eager", 2.0), ("triton", 1.0)))
    assert found["implementation"] == ["PyTorch", "lmperf's kernel"]
    assert found["over.eager"] == ["–", "2.00x (2.00-2.00) faster"]
    assert found["over.triton"] == ["0.50x (0.50-0.50) slower", "–"]


def test_baseline_can_be_chosen_and_many_have_one():
    many = [(name, 1.0) for name in ("eager", "triton", "sdpa", "flex", "sdpa_cudnn")]
    assert [name for name in words(rows(*many)) if name.startswith("over.")] == ["over.eager"]
    found = words(rows(*many[:2]), over="triton")
    assert [name for name in found if name.startswith("over.")] == ["over.triton"]


def test_short_tables_compare_with_the_fastest_peer():
    benchmark = load(STEM, {"mine": "a:b"})
    of = rows(("sdpa_cudnn", 2.0), ("triton", 1.0), ("mine", 0.5))
    (table,) = short_tables(of, benchmark)
    assert [column.name for column in table.columns] == ["implementation", "ms", "over.best"]
    found = {cells[0].words: cells[2].words for cells in table.lines}
    assert found == {
        "SDPA cuDNN": "0.50x (0.50-0.50) slower",
        "lmperf's kernel": "–",
        "mine": "2.00x (2.00-2.00) faster",
    }
    (table,) = short_tables(of, benchmark, "sdpa_cudnn")
    assert table.columns[2].name == "over.sdpa_cudnn"


def test_short_tables_have_at_most_100_columns():
    marked = {"phase": "train_step", "marks": "capped", "max_error": 1e-6, "error_bound": 1e-5}
    marked |= {"device_ms": 1e4, "bound": "device"}
    longest = max(IMPLEMENTATIONS, key=lambda name: len(IMPLEMENTATIONS[name]))
    of = planted.evidence(
        planted.row("end_to_end", 1234.5, 200.0, implementation=longest, **marked),
        planted.row("end_to_end", 1223.4, 300.0, implementation="mine", **marked),
    )
    (table,) = short_tables(of, load("end_to_end", {"mine": "a:b"}))
    lines = terminal(table, 24).splitlines()
    widest = max(lines[1:-1], key=len)
    assert "unresolved" in "".join(lines) and len(widest) <= 100, widest


def test_failed_check_has_its_reason_and_no_time():
    bad = planted.row(STEM, 1.0, implementation="triton", phase="forward", max_error=1.0)
    bad |= {"status": "failed_check", "error_bound": "0.1", "reason": "dq is wrong"}
    good = planted.row(STEM, 1.0, implementation="eager", phase="forward", max_error=1e-6)
    evidence = planted.evidence(good | {"error_bound": "1e-5"}, bad)
    found = words(evidence)
    assert found["ms"][1] == "withheld" and found["max_error"] == [
        "1.0e-06 / 1.0e-05",
        "1.0e+00 / 1.0e-01",
    ]
    assert (
        failures(evidence.rows(STEM))
        == "- gate failed, withheld, lmperf's kernel (1 row): dq is wrong"
    )
