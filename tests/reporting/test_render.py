"""The report as a whole: deterministic, whole, and honest about what is not there."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import synthetic

from lmperf.reporting import render, sections
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.render import render_index, render_machine


def rendered(evidence, directory, templates):
    render_machine(evidence, directory, templates)
    return (directory / "report.md").read_text()


@pytest.fixture(scope="module")
def report(tmp_path_factory, templates):
    directory = tmp_path_factory.mktemp("gpu")
    return directory, rendered(synthetic.gpu_evidence(), directory, templates)


@pytest.fixture
def words_only(monkeypatch):
    """Drawing takes most of a rendering's time; tests of the words go without."""
    monkeypatch.setattr(sections, "draw", lambda build: None)


def test_the_tables_of_the_seeds_are_there(report):
    _, text = report
    shown = set(re.findall(r"\*\*Table (\w\d)", text))
    assert shown >= set(
        ["E1", "E2", "E3", "E4", "P1", "P2", "P3", "P4", "M1", "M2", "Y1", "Y2", "Y3", "Y4", "Y5"]
    )
    assert shown >= set(["A1", "A2", "A3", "A4", "F1", "F2", "F3", "F4", "L1", "L2"])
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "## Main findings",
        "## The machine",
        "## What is here",
        "## How it was measured",
        "## What this machine can do",
        "## End to end",
        "## Warm-up",
        "## Profiles",
        "## Mixed precision",
        "## Memory",
        "## Memory over time",
        "## Attention",
        "## FlashAttention-2",
        "## md_lrpe_cosine",
        "## Across the sections",
        "## Published figures",
        "## What this report cost",
    ]


def test_every_line_of_a_table_has_the_columns_of_its_header(report):
    _, text = report
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M)
    assert len(blocks) > 20
    for block in blocks:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1, block[:200]


def test_no_placeholder_of_the_machinery_reaches_the_reader(report):
    _, text = report
    assert not re.search(r"\bnan\b|\bNaN\b|\bNone\b|np\.|\{\{|\}\}|\binf\b", text)


def test_rows_in_another_order_give_the_same_report(report, tmp_path, templates):
    _, text = report
    evidence = synthetic.gpu_evidence()
    for stem, frame in evidence.frames.items():
        if stem != "mixed_precision":
            evidence.frames[stem] = frame.sample(frac=1, random_state=3)
    assert rendered(evidence, tmp_path, templates) == text


def test_figures_are_text_on_a_transparent_ground_and_linked(report):
    directory, text = report
    links = re.findall(r"!\[[^\]]+\]\((figures/\w+\.svg)\)", text)
    assert len(links) == 6
    for link in links:
        svg = (directory / link).read_text()
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "<text" in svg and "<dc:date>" not in svg
        assert not re.search(r"fill: ?#(ffffff|000000)", svg.replace("fill: none", ""))


def test_out_of_memory_and_unsupported_are_words(report):
    _, text = report
    assert re.search(r"OOM \(asked [\d.]+ GiB, [\d.]+ GiB free\)", text)
    assert "unsupported" in text and "has no float32 kernel \\| see" in text


def test_a_red_gate_is_withheld_in_place_and_named(tmp_path, templates, words_only):
    evidence = synthetic.cpu_evidence()
    frame = evidence.frames["flash_attention"]
    bad = (frame["implementation"] == "tiled") & (frame["seq_len"] == 256)
    frame.loc[bad, "status"] = "failed_check"
    text = rendered(evidence, tmp_path, templates)
    line = next(
        x
        for x in text.splitlines()
        if x.startswith("|") and re.match(r"\| +256 ", x) and "gate failed" in x
    )
    assert line.count("gate failed, withheld") == 3 and "withheld |" in line
    assert "**Gates failed.** 3 rows" in text
    assert (
        "seq_len=256, d_head=64, dtype=float32, causal=True, cuda_graph=False, tiled, backward"
        in text
    )


def test_stale_damaged_and_missing_are_said_by_name(tmp_path, templates, words_only):
    evidence = synthetic.cpu_evidence()
    evidence.stale["attention"] = ["seq_len=128, eager, forward"]
    evidence.damaged["memory"] = "memory.csv: the digest differs"
    evidence.missing["end_to_end"] = ["size=xl, eager, forward"]
    text = rendered(evidence, tmp_path, templates)
    assert "**Stale.**" in text and "- seq_len=128, eager, forward" in text
    assert "memory.csv: the digest differs" in text and "Table Y1" not in text
    assert "**Incomplete.**" in text and "- size=xl, eager, forward" in text


def test_a_section_without_evidence_says_so(tmp_path, templates, words_only):
    evidence = synthetic.cpu_evidence()
    del evidence.frames["attention"]
    text = rendered(evidence, tmp_path, templates)
    section = text.split("\n## Attention\n")[1].split("\n## ")[0]
    assert "was not measured" in section and "|" not in section


def test_a_machine_without_any_evidence_renders(tmp_path, templates):
    text = rendered(MachineEvidence("bare"), tmp_path, templates)
    assert "Nothing has been measured on this machine yet" in text
    assert not list(tmp_path.glob("figures/*"))


def test_a_benchmark_of_which_nothing_could_run_renders(tmp_path, templates):
    evidence = synthetic.cpu_evidence()
    axes = {"attention": 5, "memory": 4, "end_to_end": 4, "flash_attention": 6}
    for stem, count in axes.items():
        frame = evidence.frames[stem]
        kept = frame[[*frame.columns[:count], "implementation", "phase"]]
        evidence.frames[stem] = kept.assign(status="crash", reason="no such instruction")
    text = rendered(evidence, tmp_path, templates)
    assert text.count("no such instruction") >= 4 and "crash" in text


def test_a_benchmark_needs_only_a_template_to_be_shown(tmp_path, templates, words_only):
    import shutil

    copied = tmp_path / "templates"
    shutil.copytree(templates, copied)
    body = "{% extends 'section.md.j2' %}{% block title %}Softmax{% endblock %}"
    body += "{% block body %}{{ measurements() }}{% endblock %}"
    (copied / "sections" / "softmax.md.j2").write_text(body)
    evidence = synthetic.cpu_evidence()
    frame = evidence.frames["attention"]
    evidence.frames["softmax"] = frame
    evidence.frames["unheard_of"] = frame
    text = rendered(evidence, tmp_path / "out", copied)
    section = text.split("\n## Softmax\n")[1]
    assert "| PyTorch (eager)" in section and "±" in section
    assert "unheard_of" in text.split("## Evidence without a section")[1]


def test_a_crash_leaves_the_old_report_as_it_was(tmp_path, templates, monkeypatch):
    text = rendered(synthetic.cpu_evidence(), tmp_path, templates)

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(render.os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        render_machine(MachineEvidence("bare"), tmp_path, templates)
    assert (tmp_path / "report.md").read_text() == text
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_figure_that_is_no_longer_drawn_is_removed(tmp_path, templates, monkeypatch):
    monkeypatch.setattr(sections, "draw", lambda build: "<svg/>")
    evidence = synthetic.cpu_evidence()
    render_machine(evidence, tmp_path, templates)
    assert (tmp_path / "figures" / "memory.svg").exists()
    del evidence.frames["memory"]
    render_machine(evidence, tmp_path, templates)
    assert not (tmp_path / "figures" / "memory.svg").exists()
    assert (tmp_path / "figures" / "attention.svg").exists()


def test_the_index_compares_only_what_both_measured(tmp_path, templates):
    evidences = [synthetic.gpu_evidence(), synthetic.cpu_evidence()]
    render_index(evidences, "cpu-example", tmp_path, templates)
    text = (tmp_path / "report.md").read_text()
    assert "[cpu-example](cpu-example/report.md)" in text
    assert "Ceilings by machine" in text
    assert "`nvidia-h200` has the shortest time in all" in text
    compared = text.split("**Table E5")[1]
    assert "small" in compared and "tiny" not in compared and "medium" not in compared
    header = next(line for line in compared.splitlines() if line.startswith("|"))
    assert header.index("cpu-example") < header.index("nvidia-h200")


@pytest.mark.parametrize("here", [None, "another"])
def test_an_index_without_the_machine_at_hand_says_why(tmp_path, templates, here):
    reason = "it has no accelerator"
    render_index([synthetic.cpu_evidence()], here, tmp_path, templates, reason)
    text = (tmp_path / "report.md").read_text()
    assert "has not been measured: it has no accelerator." in text
    assert "[cpu-example](cpu-example/report.md)" in text


def test_another_process_without_torch_writes_the_same_bytes(tmp_path, templates):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import synthetic\n"
        "from lmperf.reporting.render import render_machine\n"
        "render_machine(synthetic.cpu_evidence(), Path(sys.argv[2]), Path(sys.argv[3]))\n"
    )
    here, there = tmp_path / "here", tmp_path / "there"
    folder = str(Path(synthetic.__file__).parents[1])
    command = [sys.executable, "-c", program, folder, str(there), str(templates)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "12345"})
    render_machine(synthetic.cpu_evidence(), here, templates)
    names = sorted(path.relative_to(here) for path in here.rglob("*") if path.is_file())
    assert len(names) == 6
    for name in names:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name


def test_every_row_of_grown_evidence_is_shown(tmp_path, templates, words_only):
    evidence = synthetic.gpu_evidence()
    before = rendered(evidence, tmp_path / "before", templates).count("\n|")
    rows = sum(map(len, evidence.frames.values()))
    after = rendered(synthetic.grown(evidence, 3 * rows), tmp_path / "after", templates)
    assert after.count("\n|") > 2 * before
    assert "Evidence without a section" not in after
