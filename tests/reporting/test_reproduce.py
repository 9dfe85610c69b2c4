"""Commands under tables that measure one of their cells again."""

import re
import shlex
from types import SimpleNamespace

import pytest
import rendered_evidence
import synthetic

from lmperf import cli
from lmperf.benchmarks import load
from lmperf.evidence.wanted import Chosen, Wanted, beyond_the_grid, select
from lmperf.names import size_words
from lmperf.reporting import custom, pages, reproduce
from lmperf.reporting.sections import compose


def commands(evidence):
    """(section, group of tables) -> the commands under its tables."""
    found = {}
    for section in pages.composed(evidence, synthetic.TEMPLATES, drawn=False):
        for group in section.section.tables:
            lines = reproduce.lines(evidence, section.stem, group, section.parts[group.name])
            texts = [re.fullmatch(r"Reproduce a cell: `(.*)`", line)[1] for line in lines if line]
            if section.parts[group.name]:
                found[section.stem, group.name] = texts
    return found


def chosen_by(text, preset):
    """The benchmark with its phases, and the cases, that a command selects."""
    program, name, *arguments = shlex.split(text)
    assert (program, name) == ("lmperf", "run")
    given = cli.lmperf.commands["run"].make_context("run", arguments).params
    benchmark = load(given["stem"])
    wanted = Wanted((), given["only"], given["implementations"], given["phases"])
    config, machine = SimpleNamespace(grid_of=lambda stem: {}), SimpleNamespace(devices=8)
    project = SimpleNamespace(config=config, machine=machine, preset=preset)
    offered = beyond_the_grid(project, Chosen(benchmark, benchmark.cases(preset)), wanted)
    (chosen,) = select([offered], wanted)
    return given, chosen


def check(evidence, preset):
    """Check that every command selects one case and one phase: those that it names."""
    found = commands(evidence)
    for text in {text for texts in found.values() for text in texts}:
        given, chosen = chosen_by(text, preset)
        (case,) = chosen.cases
        for name, value in given["only"]:
            assert size_words(str(case.axes[name])).lower() == value.lower(), text
        assert [case.implementation] == given["implementations"], text
        assert len(chosen.benchmark.phases_of(case)) == 1, text
        assert given["against"] == evidence.machine
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu", "cpu"])
def test_commands_select_the_case_and_phase_that_they_name(name, request):
    found = check(request.getfixturevalue(name), name)
    without = {place for place, texts in found.items() if not texts}
    assert {stem for stem, _ in without} <= {"method", "published"}, without


@pytest.mark.machine
def test_commands_of_the_published_report_select_one_case():
    check(rendered_evidence.of_machine(synthetic.TEMPLATES.parent / "report/nvidia-h200"), "gpu")


@pytest.mark.slow
def test_page_has_a_command_below_each_table(cpu, templates):
    section = compose("flash_attention", cpu, drawn=False)
    page = pages.page(cpu, section, templates)
    text = page.split("## F1.")[1].split("\n## ")[0]
    table, _, command = text.rpartition("\n\nReproduce a cell: ")
    assert "| 1024 |" in table
    assert command.startswith("`lmperf run flash_attention --only batch=1,")
    assert command.rstrip().endswith(" --against cpu-example`")


def lines(evidence, stem, name):
    section = compose(stem, evidence, drawn=False)
    (group,) = (group for group in section.section.tables if group.name == name)
    return reproduce.lines(evidence, stem, group, section.parts[name])


def test_command_takes_a_sound_and_fresh_row(cpu):
    def line(**marked):
        frame = cpu.frames["attention"]
        is_long = frame["seq_len"] > 128
        changed = frame.assign(**{name: is_long.map(of) for name, of in marked.items()})
        first, *_ = lines(synthetic.with_frames(cpu, attention=changed), "attention", "A1")
        return first

    assert "seq_len=512" in line()
    assert "seq_len=128" in line(stale={True: True, False: False})
    assert "seq_len=128" in line(marks={True: "drift", False: None})


def test_command_quotes_values_with_spaces(cpu):
    (line,) = lines(cpu, "mixed_precision", "M1")
    assert "--only 'experiment=accumulation,subject=" in line


def test_custom_implementations_have_no_command(cpu):
    evidence = rendered_evidence.custom(cpu)
    frame = evidence.frames["attention"]
    keys = [f"k{number}" for number in range(len(frame))]
    evidence = synthetic.with_frames(evidence, attention=frame.assign(key=keys))
    assert not any(lines(evidence, "attention", custom.TITLE))
