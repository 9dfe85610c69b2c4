"""The rows that are measured a second time: which are drawn, when they are due, what is stored."""

import copy
import dataclasses

import pytest
from configurations import FLASH_ATTENTION

from lmperf import cli
from lmperf.benchmark import Implementation, Timed
from lmperf.benchmarks import load, stems
from lmperf.config import load_config
from lmperf.evidence import keys
from lmperf.evidence.plan import COPIES_DIFFER
from lmperf.evidence.project import Project
from lmperf.evidence.record import record, repeat
from lmperf.evidence.repeatability import LEFT_OUT, MOST_COMPILED, ROWS, STEM, draw
from lmperf.evidence.review import causes, review
from lmperf.measuring import rest

OOM = {"requested_bytes": 2**40, "free_bytes": 2**30, "reason": "out of memory"}


def offered(preset="gpu", **external):
    benchmarks = [load(stem, external if load(stem).takes else None) for stem in stems()]
    return [(benchmark, benchmark.cases(preset)) for benchmark in benchmarks]


def names(drawn):
    return [one.name for one in drawn]


def phases_of(stem, drawn):
    return {one.columns["phase"] for one in drawn if one.benchmark.stem == stem}


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_draw_has_24_rows_of_all_timed_benchmarks(preset):
    drawn = draw(offered(preset))
    assert len(set(names(drawn))) == len(drawn) == ROWS == 24
    timed = [load(stem) for stem in {*stems()} - LEFT_OUT if isinstance(load(stem), Timed)]
    for benchmark in timed:
        assert phases_of(benchmark.stem, drawn), benchmark.stem
    steps = [one for one in drawn if one.benchmark.clock == "step"]
    assert len(steps) == ROWS // 2
    assert {one.columns["phase"] for one in steps} == set(load("end_to_end").phases)


@pytest.mark.parametrize("preset", ["cpu", "gpu"])
def test_draw_is_the_same_in_every_run_and_review(preset):
    assert names(draw(offered(preset))) == names(draw(offered(preset)[::-1]))


def test_new_cells_change_few_drawn_rows():
    before = names(draw(offered()))
    grid = [{**part, "d_head": [16, 32, 64, 128, 256]} for part in load("attention").grids["gpu"]]
    more = [
        (benchmark, benchmark.cases("gpu", {"d_head": grid[0]["d_head"]}))
        if benchmark.stem == "attention"
        else (benchmark, cases)
        for benchmark, cases in offered()
    ]
    assert len(set(before) - set(names(draw(more)))) <= 3


def test_peers_and_custom_implementations_are_not_drawn():
    with_mine = offered(mine="my_module:mine", peer=Implementation("peer", "a:b", origin="peer"))
    assert names(draw(with_mine)) == names(draw(offered()))


def test_unsupported_cases_are_not_drawn():
    for one in draw(offered()):
        only = one.benchmark.implementation(one.case.implementation).only
        assert all(one.case.axes[axis] in values for axis, values in only.items()), one.name


def test_draw_has_few_compiled_steps():
    for preset in ("cpu", "gpu"):
        assert 0 < sum(one.compiles_a_model for one in draw(offered(preset))) <= MOST_COMPILED


def test_few_cases_are_all_drawn():
    steps = load("end_to_end")
    cases = [case for case in steps.cases("cpu") if case.implementation == "eager"][:2]
    drawn = draw([(steps, cases)])
    assert {one.case for one in drawn} == set(cases) and len(drawn) == 2 * len(steps.phases)
    assert draw([(load("memory"), load("memory").cases("cpu"))]) == []


def test_drawn_row_has_one_phase_and_leaves_the_benchmark_alone():
    benchmark = load("attention")
    drawn = draw([(benchmark, benchmark.cases("cpu"))])
    assert {len(one.benchmark.phases) for one in drawn} == {1}
    assert benchmark.phases == copy.copy(type(benchmark).phases)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with first and second rows of all its cells, none of which was really measured."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(FLASH_ATTENTION)

    def rows_of(benchmark, cases, status="oom"):
        about = {"status": status, "seed": 1, **OOM}
        return [
            {**case.axes, "implementation": case.implementation, "phase": phase, **about}
            for case in cases
            for phase in benchmark.phases
        ]

    def measure(benchmark, groups, device, save, *_):
        for group in groups:
            save(rows_of(benchmark, group), {})

    def measure_alone(cases, device, save, *_):
        for benchmark, case in cases:
            save(rows_of(benchmark, [case]), {})

    monkeypatch.setattr("lmperf.evidence.record.measure", measure)
    monkeypatch.setattr("lmperf.evidence.record.measure_alone", measure_alone)
    project = project_in(tmp_path)
    record(project, project.plan("flash_attention"))
    project = project_in(tmp_path)
    assert repeat(project, project.repeats).total() == 6
    return tmp_path


def project_in(folder, **config):
    path = folder / "config/config.yaml"
    return Project(load_config(path, config), folder)


def test_second_rows_have_the_keys_of_the_first(folder):
    project = project_in(folder)
    first = {row["key"] for row in project.plan("flash_attention").rows}
    assert {row["key"] for row in project.repeats.rows} == first
    assert not project.repeats.is_due and project.repeats.summary.startswith("0 of 6 rows")


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["method", "implementation"])
def test_second_row_is_stale_when_the_first_is(folder, monkeypatch, changed):
    if changed == "method":
        monkeypatch.setattr(keys, "METHOD_VERSION", 99)
    else:
        original = keys.code_of
        monkeypatch.setattr(
            keys,
            "code_of",
            lambda b, name: {**original(b, name), **({"problem": "new"} if name == "sdpa" else {})},
        )
    project = project_in(folder)
    plan = project.plan("flash_attention")
    stale = {case.implementation for case, why in plan.due if why == "stale"}
    due = {one.case.implementation for one, why in project.repeats.due if why == "stale"}
    assert due == stale == ({"eager", "sdpa"} if changed == "method" else {"sdpa"})
    named = review(project, "here").stale
    assert len(named[STEM]) == len(named["flash_attention"]) == 3 * len(stale)


@pytest.mark.slow
def test_verify_asks_for_second_rows_only_in_full_runs(folder):
    project = project_in(folder)
    (project.directory / "evidence/repeatability.csv").unlink()
    (project.directory / "evidence/repeatability.sha256").unlink()
    assert STEM not in {cause.stem for cause in causes(project, "here")}
    assert not project.repeats_rows
    full = project_in(folder, benchmarks="all")
    found = {cause.stem: cause for cause in causes(full, "here")}
    assert full.repeats_rows and found[STEM].kind == "missing" and len(found[STEM].names) == ROWS


def test_deleted_second_rows_come_back_from_the_store(folder, monkeypatch):
    path = folder / "report/here/evidence/repeatability.csv"
    before = path.read_bytes()
    path.unlink()
    monkeypatch.setattr("lmperf.evidence.record.measure_alone", None)
    project = project_in(folder)
    assert project.repeats.is_due and not project.repeats.due
    repeat(project, project.repeats)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_damaged_second_rows_are_named_and_measured_again(folder):
    for name in ("evidence", "store"):
        path = folder / f"report/here/{name}/repeatability.csv"
        path.write_text(path.read_text().replace("oom", "ok"))
    project = project_in(folder)
    (damage,) = (cause for cause in causes(project, "here") if cause.kind == "damaged")
    assert damage.stem == STEM and "edited or truncated" in str(damage)
    assert {why for _, why in project.repeats.due} == {"damaged"}
    repeat(project, project.repeats)
    assert not project_in(folder).repeats.is_due


@pytest.mark.slow
def test_damaged_store_of_second_rows_is_named(folder):
    path = folder / "report/here/store/repeatability.csv"
    path.write_text(path.read_text().replace("oom", "ok"))
    found = causes(project_in(folder, benchmarks="all"), "here")
    (damage,) = (cause for cause in found if cause.kind == "damaged")
    assert damage.stem == STEM and "store" in str(damage) and "next run repairs" in str(damage)


@pytest.mark.slow
def test_second_rows_that_differ_in_the_store_are_named(folder):
    repeats = project_in(folder).repeats
    changed, *others = repeats.rows
    repeats.store.hold([{**changed, "free_bytes": "7"}, *others])
    found = causes(project_in(folder, benchmarks="all"), "here")
    (differs,) = (cause for cause in found if cause.kind == COPIES_DIFFER)
    assert differs.stem == STEM and len(differs.names) == 1


def test_impossible_second_row_is_a_fault(folder):
    project = project_in(folder)
    rows = [{**row, "status": "ok"} for row in project.repeats.rows]
    project.repeats.evidence.hold(rows)
    found = project.repeats.evidence.reading()
    assert not found.rows and "status is ok, but median_ms is empty" in found.faults[0]


def test_failed_second_row_is_retried_if_configured(folder):
    assert not project_in(folder).repeats.due
    again = project_in(folder, retry_failed=True).repeats
    assert {why for _, why in again.due} == {"failed"}


def test_forced_run_measures_all_rows_again(folder):
    repeats = dataclasses.replace(project_in(folder).repeats, forced=True)
    assert {why for _, why in repeats.due} == {"forced"} and len(repeats.due) == 6


@pytest.mark.slow
def test_marked_second_rows_are_measured_again_at_rest(folder, monkeypatch, capsys):
    repeats, waits = project_in(folder).repeats, []
    for file in (repeats.store, repeats.evidence):
        file.hold([{**row, "marks": "loaded"} for row in repeats.rows])
    monkeypatch.chdir(folder)
    monkeypatch.setattr(rest, "wait_for_rest", lambda *_: waits.append(1))
    assert cli.main(["repeat"]) == 0 and not waits
    assert cli.main(["repeat", "--config", "remeasure=true"]) == 0 and waits == [1]
    assert "repeatability: 6 of 6 marked rows cleared" in capsys.readouterr().out


@pytest.mark.slow
def test_copies_that_differ_do_not_count(folder):
    repeats = project_in(folder).repeats
    changed, *others = repeats.rows
    repeats.store.hold([{**changed, "free_bytes": "7"}, *others])
    repeats = project_in(folder).repeats
    assert len(repeats.rows) == 5 and [why for _, why in repeats.due] == ["missing"]
    repeats.store.hold([{**changed, "free_bytes": "7", "measured_at": "2999"}, *others])
    assert not project_in(folder).repeats.due
