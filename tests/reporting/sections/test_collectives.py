"""Tables D1 and D15, and what is found from collectives between ranks."""

import functools

import limits
import pytest
from finding_checks import assert_answers_reached
from synthetic import gpu_evidence, provenance, with_frames
from synthetic.builder import Builder
from synthetic.collectives import H200_LINK, collectives

from lmperf.reporting.findings import state
from lmperf.reporting.markdown import markdown
from lmperf.reporting.sections import compose
from lmperf.reporting.sections.distributed import all_reduces
from lmperf.reporting.sections.distributed import collectives as rates
from lmperf.reporting.sections.distributed.links import lines_of, link_gbps

FINDINGS = (*rates.FINDINGS, *all_reduces.FINDINGS)
TABLES = (*rates.TABLES, *all_reduces.TABLES)


@functools.cache
def evidence(preset="gpu", link=None, ranks=None):
    """Evidence with collectives; `link`: pairs of operation and (seconds of a call, GB/s)."""
    changed = H200_LINK | dict(link) if link else None
    frame = provenance(collectives(Builder(3), preset, changed, ranks), "e1")
    return with_frames(gpu_evidence(), collectives=frame)


def tables(name, *arguments):
    return next(table for table in TABLES if table.id == name).make(evidence(*arguments))


def line(table, **where):
    frame = table.frame
    for name, value in where.items():
        frame = frame[frame[name.replace("_", " ")] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_d1_has_a_table_for_each_dtype_and_number_of_ranks():
    *made, fits = tables("D1")
    assert len(made) == 6 and all(len(table.columns) <= 8 for table in made)
    two = next(t for t in made if t.axes == {"dtype": "float32", "ranks": 2})
    assert two.length == 4 * 7 and fits.length == 20


def test_d1_gives_rates_as_nccl_tests_and_shares_of_the_copy():
    made = {(t.axes["dtype"], t.axes["ranks"]): t for t in tables("D1")[:-1]}
    row = line(made["float32", 8], operation="all-reduce", message="1 GB")
    algorithm, bus = map(float, row["algorithm / bus (GB/s)"].split(" / "))
    assert bus == pytest.approx(1.75 * algorithm, rel=0.01) and bus == pytest.approx(328, rel=0.03)
    link = link_gbps(evidence().frame("collectives"))
    assert link == pytest.approx(395, rel=0.03)
    assert float(row["bus (% of copy)"]) == pytest.approx(100 * bus / link, abs=1)
    assert row["wrong elements"] == 0 and row["host (ms)"] == "0.0300"


def test_d1_counts_the_wrong_elements_of_a_row_that_it_withholds():
    frame = evidence().frames["collectives"].copy()
    wrong = frame.index[(frame["operation"] == "all_gather") & (frame["ranks"] == 8)][-1]
    frame.loc[wrong, ["status", "reason"]] = "failed_check", "wrong_elements differs"
    frame.loc[wrong, ["error_wrong_elements", "max_error"]] = 3.0
    made = TABLES[0].make(with_frames(gpu_evidence(), collectives=frame))
    table = next(t for t in made if t.axes == {"dtype": "bfloat16", "ranks": 8})
    row = line(table, operation="all-gather", message="1 GB")
    assert row["wrong elements"] == 3 and row["time (ms)"] == "gate failed, withheld"
    assert row["algorithm / bus (GB/s)"] == "– / –" and row["bus (% of copy)"] == "–"


def test_fits_recover_overhead_and_bus_bandwidth():
    found = lines_of(evidence(), trusted=True)
    for operation, (overhead, rate) in H200_LINK.items():
        one = found[operation, "float32", 2]
        assert one.overhead.value == pytest.approx(overhead, rel=0.05)
        assert one.rate.value == pytest.approx(1e9 * rate, rel=0.05)
    table = tables("D1")[-1]
    row = line(table, operation="all-reduce", dtype="float32", ranks=4)
    assert "(" in row["bus (GB/s)"] and row["error of the fit"].endswith("%")


def test_too_few_sizes_give_rates_without_fits():
    frame = evidence().frames["collectives"]
    few = with_frames(gpu_evidence(), collectives=frame[frame["message_bytes"] > 10**7])
    made = TABLES[0].make(few)
    assert len(made) == 6 and lines_of(few, trusted=False) == {}
    assert all(state(finding, few) is None for finding in FINDINGS)


def test_d15_predicts_both_all_reduces_from_the_fits():
    made = {(t.axes["dtype"], t.axes["ranks"]): t for t in tables("D15")}
    for ranks, slower in ((2, 1.0), (8, 4.0)):
        table = made["bfloat16", ranks]
        assert len(table.columns) == 7
        columns = {column.name: column for column in table.columns}
        measured, predicted = (
            columns[f"forward.{name}"].cells[-1].value
            for name in ("scatter_gather", "scatter_gather.predicted")
        )
        assert predicted == pytest.approx(measured, rel=0.05)
        whole = columns["forward.pass_round.predicted"].cells[-1].value
        assert whole / predicted == pytest.approx(slower * 285 / 395, rel=0.05)
        assert columns["scatter_gather.over.pass_round"].cells[-1].value is not None


def test_findings_give_every_declared_answer():
    slow, fast = (("all_reduce", (2e-5, 100.0)),), (("copy", (8e-6, 1000.0)),)
    even = (("copy", (3e-5, 1.1 * 285.0)),)
    cases = {
        "collectives_rate": {"near": evidence, "far": lambda: evidence("gpu", slow)},
        "collectives_round": {
            "parts": evidence,
            "whole": lambda: evidence("gpu", fast, 2),
            "same": lambda: evidence("gpu", even, 2),
        },
    }
    assert_answers_reached(FINDINGS, cases)


def test_finding_on_passing_round_compares_measured_and_predicted():
    said = state(FINDINGS[1], evidence()).sentence
    assert said.startswith("An all-reduce of 1 GB over 8 ranks is 3.") and "D1) predict 2.8" in said


@pytest.mark.parametrize(
    ("least", "words"),
    [
        (1, "No size decides whether torch.distributed's own all-reduce is faster than both, or"),
        (10**7, "own all-reduce is faster than both at 4 of 7 sizes. 3 sizes do not decide."),
        (2 * 10**9, "own all-reduce is faster than both at 7 of 7 sizes."),
    ],
)
def test_sizes_that_do_not_decide_on_the_library_are_named(least, words):
    frame = evidence().frames["collectives"]
    is_it = (frame["operation"] == "all_reduce") & (frame["implementation"] == "library")
    marks = (is_it & (frame["message_bytes"] >= least)).map({True: "loaded", False: ""})
    made = with_frames(gpu_evidence(), collectives=frame.assign(marks=marks))
    said = state(FINDINGS[1], made).sentence
    assert words in said and limits.faults(said) == []


def test_slower_all_reduce_of_the_library_is_named():
    said = state(FINDINGS[1], evidence("gpu", (("all_reduce", (2e-4, 20.0)),))).sentence
    assert "faster than both at none of 7 sizes, and slower than one of them at 7." in said


def test_predicted_ratio_has_the_direction_of_the_measured_one():
    found = state(FINDINGS[1], evidence("gpu", (("copy", (8e-6, 1000.0)),), 2))
    assert found.answer == "whole" and found.values["ratio"] > 1 < found.values["predicted"]


def test_cpu_rows_give_tables_without_host_times():
    *made, _ = tables("D1", "cpu")
    assert len(made) == 1 and "host (ms)" not in made[0].frame
    assert "| all-reduce | 10 MB |" in markdown(made[0]).replace("  ", " ")


def test_collectives_alone_give_their_tables_and_findings():
    section = compose("distributed", evidence(), drawn=False)
    assert all(section.parts[name] for name in ("D1", "D14", "D15"))
    assert {"collectives_rate", "distributed_bound"} <= {one.name for one in section.statements}
