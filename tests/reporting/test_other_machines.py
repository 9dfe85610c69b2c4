"""Compare machines: tables of cells that two machines measured, table E5 and the overview."""

from dataclasses import replace

import pytest
import synthetic

from lmperf.reporting import other_machines, pages
from lmperf.reporting.compared_machines import compared
from lmperf.reporting.coverage import State
from lmperf.reporting.markdown import markdown
from lmperf.reporting.tables import TableGroup


@pytest.fixture
def second():
    return replace(synthetic.gpu_evidence(5), machine="second-gpu")


def test_ceilings_are_ordered_by_dtype(gpu, cpu):
    table = other_machines.ceilings_by_machine([cpu, gpu]).frame
    assert list(table["operation"].unique()) == ["copy 1:1", "copy 1:2", "copy 2:1", "matmul"]
    burst = table[(table["operation"] == "matmul") & (table["load"] == "single calls")]
    assert list(burst["numerics"]) == ["float32", "TF32", "float16", "bf16"]
    assert list(burst["cpu-example"]) == ["0.120", "–", "–", "0.0300"]
    lasting = table[table["load"] == "back to back"]
    assert list(lasting["nvidia-h200"]) == ["46.8", "351", "711", "720"]
    assert other_machines.ceilings_by_machine([gpu]) is None


def test_write_up_shows_one_step_per_size(gpu, second, cpu):
    steps = other_machines.side_by_side_steps([gpu, second])
    assert list(steps.frame["size"]) == ["small", "medium", "large", "2.0B", "3.4B"]
    assert steps.caption == "End to end, context 1024, batch 4, float32, eager"
    assert len(other_machines.side_by_side_steps([gpu, cpu]).frame) == 1
    assert other_machines.side_by_side_steps([gpu]) is None


def test_every_machine_has_a_line_with_a_link(gpu, cpu):
    lines = other_machines.machines_lines([gpu, cpu]).frame
    assert list(lines["machine"]) == [
        "[nvidia-h200](nvidia-h200/report.md)",
        "[cpu-example](cpu-example/report.md)",
    ]
    assert other_machines.machines_lines([]) is None


@pytest.mark.slow
def test_index_counts_cells_that_machines_share(gpu_copy, second, cpu_copy):
    both = other_machines.state([cpu_copy, gpu_copy])
    assert both.measured == 10 and both.owed > 800
    assert both.words == "measured on at least two machines"
    all_of_them = other_machines.state([gpu_copy, second])
    assert all_of_them.measured == all_of_them.owed
    cpu_copy.frames = {"attention": cpu_copy.frames["attention"]}
    assert other_machines.state([cpu_copy, gpu_copy]).words == "no shared cell"


def test_table_e5_follows_e4_in_the_index_of_several_machines(gpu, cpu):
    tables = [TableGroup(name, name, lambda _: []) for name in ("M1", "E1", "E4", "E6", "P1")]
    states = [State(table, "x.md", 1, 1, "measured", False) for table in tables]
    ids = [s.table.id for s in other_machines.indexed(states, [gpu, cpu])]
    assert ids == ["M1", "E1", "E4", "E5", "E6", "P1"]
    several = other_machines.indexed(states[:1], [gpu, cpu])
    assert [s.table.id for s in several] == ["M1", "E5"]
    assert other_machines.indexed(states, [gpu]) == other_machines.indexed(states, []) == states


@pytest.mark.slow
def test_overview_links_machines_only_if_there_are_several(gpu, second, templates):
    files = pages.overview_files([gpu, second], gpu.machine, [], templates)
    write_up, machines = files["report.md"], files[other_machines.PAGE]
    assert "[E5](machines.md#e5-the-same-cells-on-several-machines)" in write_up
    assert "[second-gpu](second-gpu/report.md)" in write_up and "context 1024" in write_up
    assert f"## {other_machines.TABLE.heading}" in machines
    assert "cell by cell](machines-nvidia-h200-second-gpu.md)" in machines
    ratios = files["machines-nvidia-h200-second-gpu.md"]
    assert ratios.startswith("# nvidia-h200 over second-gpu") and "End to end" in ratios
    alone = pages.overview_files([gpu], gpu.machine, [], templates)
    assert set(alone) == {"report.md"}
    assert "E5" not in alone["report.md"] and "machines.md" not in alone["report.md"]


def test_machine_is_compared_with_those_that_share_cells(gpu, cpu):
    few = replace(cpu, machine="a-laptop", frames={"attention": cpu.frames["attention"]})
    pairs = compared([few, cpu, gpu], markdown)["pairs"]
    assert [(pair["one"], pair["other"]) for pair in pairs] == [(gpu.machine, cpu.machine)]


@pytest.mark.slow
def test_pages_of_two_full_grids_can_be_shown_by_a_forge(gpu, second, templates):
    files = pages.overview_files([gpu, second], gpu.machine, [], templates)
    assert all(len(text.encode()) < 400_000 for text in files.values())
