"""Tests of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/: commands, links and examples.

Every command in a block of a page must parse. Those of `SAID`, and those whose output a page shows,
run as well, with small cells; the others need a GPU, a network, or longer measuring.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import torch
from documented import commands
from made_up import OK, pretend, rounds
from readme_table import updated

from lmperf import cli
from lmperf.benchmarks import load, stems
from lmperf.evidence.plan import Plan
from lmperf.evidence.wanted import Wanted, beyond_the_grid, select
from lmperf.names import STATUSES
from lmperf.reporting.cells import NOT_COMPARED, SIGNS
from tests.reporting import planted

ROOT = Path(__file__).parents[1]
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text() for page in PAGES}
README = TEXTS["README.md"]
# Three screens of a forge.
LINES, WIDTH = 105, 120
# Small cells for the commands that run.
CONFIG = """
preset: cpu
machine: here
benchmarks: [attention, flash_attention]
grid:
  attention:
    {batch: [1], d_head: [16, 64], seq_len: [64], dtype: [float32], implementation: [eager]}
  flash_attention:
    {batch: [1], heads: [1], seq_len: [64], d_head: [16], dtype: [float32],
     implementation: [eager, sdpa]}
"""
# Command that runs, by its first words -> words that it prints.
SAID = {
    "lmperf doctor": "flash_attention: 2 cases",
    "lmperf list  ": "attention: 2 of 2 cases",
    "lmperf list flash_attention": "sdpa: missing",
    "lmperf list attention --config": "seq_len=256",
    "lmperf run flash_attention --only seq_len=512": "over SDPA",
    "lmperf measure attention  ": "report/here/evidence/attention.csv",
    "lmperf measure attention --only": "report/here/evidence/attention.csv",
    "lmperf report  ": "report/report.md: the write-up of here",
    "lmperf show attention  ": "Plain PyTorch attention",
    "lmperf show attention --table": "",
}


COMMANDS = [(name, line) for name, text in TEXTS.items() for line in commands(text)]


def _parsed(words: list[str]) -> click.Context:
    """The context of the command that words call; raises click's error if they do not parse."""
    at = next(place for place, word in enumerate(words) if word in cli.lmperf.commands)
    return cli.lmperf.commands[words[at]].make_context(words[at], words[at + 1 :])


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            line,
            id=f"{name}: {line[:60]}",
            # Its parser takes a second to import.
            marks=[pytest.mark.snakemake] if line.startswith("snakemake") else [],
        )
        for name, line in COMMANDS
    ],
)
def test_documented_command_parses(line):
    program, *words = shlex.split(line, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    match program:
        case "lmperf":
            _parsed(words)
        case "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in words if "=" not in word} <= {*targets}
        case "snakemake":
            from snakemake.cli import get_argument_parser

            given = get_argument_parser().parse_args(words)
            assert {*given.targets} <= {"report/report.md", *stems()}
            assert given.workflow_profile is None or (ROOT / given.workflow_profile).is_dir()
        case "pip":
            known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert {*re.findall(r"\[(\w+)\]", line)} <= {*known["optional-dependencies"]}
        case _:
            assert find_spec(words[words.index("-m") + 1])


def test_prose_names_commands_that_exist():
    texts = [text for name, text in TEXTS.items() if name != "CHANGELOG.md"]
    quoted = [of for text in texts for of in re.findall(r"`lmperf ([^`]+)`", text)]
    named = {re.sub(r"^-\S+ \S+ ?", "", of).partition(" ")[0] for of in quoted} - {""}
    assert named <= {*cli.lmperf.commands}


def _with_only():
    """The command lines with `--only` in the pages and in the help of commands, but of `try`."""
    helps = "\n".join(command.help for command in cli.lmperf.commands.values())
    lines = [line for _, line in COMMANDS] + re.findall(r"^ *(lmperf .*)$", helps, re.MULTILINE)
    return [line for line in dict.fromkeys(lines) if "--only" in line and "lmperf try" not in line]


@pytest.mark.parametrize("line", _with_only())
def test_documented_cells_exist_on_a_cpu_and_on_a_gpu(line):
    words = shlex.split(line, comments=True)[1:]
    given = _parsed(words).params
    stem = given["benchmarks"][0] if words[0] == "compare" else given["stem"]
    wanted = Wanted(given["only"], given.get("implementations", ()), given.get("phases", ()))
    for preset in load(stem).grids:
        benchmark = load(stem)
        config, machine = SimpleNamespace(grid_of=lambda _: {}), SimpleNamespace(devices=2)
        project = SimpleNamespace(config=config, preset=preset, machine=machine)
        offered = Plan(benchmark, tuple(benchmark.cases(preset)), None, None)
        if words[0] != "measure":  # it measures cells of the grid only
            offered = beyond_the_grid(project, offered, wanted)
        assert select([offered], wanted)[0].cases, preset


def _run(line: str, capfd, code: int = 0) -> str:
    """Run a command line, follow its redirection, and return its stdout."""
    words, _, target = line.partition("#")[0].partition(">")
    capfd.readouterr()
    found = cli.main(shlex.split(words)[1:])
    out, error = capfd.readouterr()
    assert found == code, f"{line}\n{out}{error}"
    if target:
        Path(target.strip()).write_text(out)
    return out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the project's examples and a configuration of small cells."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.process
def test_documented_commands_run(folder, capfd, monkeypatch):
    pretend(monkeypatch, lambda *_: OK | {"together": "one"} | rounds(1.0))
    for start, words in SAID.items():
        line = next(line for _, line in COMMANDS if line.startswith(start))
        assert words in _run(line, capfd), line
    assert Path("table.tex").read_text().startswith("% Plain PyTorch attention")
    assert not Path("report/here/evidence/flash_attention.csv").exists(), "run stores nothing"


@pytest.mark.process
def test_failing_example_is_withheld_as_documented(folder, capfd):
    page = TEXTS["bring-your-own.md"].split("## A failing example")[1]
    (code,) = re.findall(r"```python\n(def attention.*?)```", page, re.DOTALL)
    (line,) = commands(page)
    (folder / "config/config.yaml").write_text("preset: cpu\nmachine: here\n")
    (folder / "my_kernels").mkdir()
    (folder / "my_kernels/wrong.py").write_text(code)
    said = _run(line, capfd, code=1)
    for words in re.findall(r"withheld, mine.*|9\.8e-01 / .*", page):
        assert words in said
    exec(code.replace("q.shape[-1]", "q.shape[-1] ** 0.5", 1), mended := {})
    q, k, v = torch.randn(3, 1, 8, 4)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(mended["attention"](q, k, v, causal=True), right)


@pytest.mark.process
def test_new_benchmark_is_measured_and_shown(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    # Other tests load the machine, and no sentence rests on rows that are loaded.
    sensors = tmp_path / "src/lmperf/measuring/sensors.py"
    sensors.write_text(sensors.read_text().replace("MOST_LOAD = 0.1", "MOST_LOAD = 9.9"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "LMPERF_COMMIT": "0" * 40}
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("preset: cpu\nmachine: here\n")
    small = ("--config", "grid.softmax.seq_len=[64,128]")

    def said(*words):
        command = (sys.executable, "-m", "lmperf.cli", *words)
        known = dict(cwd=tmp_path, env=environment, capture_output=True, text=True)
        done = subprocess.run(command, **known)
        assert done.returncode == 0, done.stderr
        return done.stdout

    written = set(said("new", "softmax").split())
    assert written == {"src/lmperf/benchmarks/softmax.py", "templates/softmax.md.j2"}
    assert all(f"`{path}`" in TEXTS["architecture.md"] for path in written)
    said("measure", "softmax", *small)
    shown = said("show", "softmax", *small)
    assert "of a square matrix in float32 reads and writes" in shown and "128" in shown


@pytest.mark.slow
def test_documented_templates_render(tmp_path):
    ours = {"triton": 1.0, "compiled": 3.0}
    rows = [
        planted.row("lrpe", ms, implementation=name, phase="forward") for name, ms in ours.items()
    ]
    cell = {"size": "0.13B", "batch": 4, "tokens": 4096}
    for name, ms in {"eager": 10.0, "mine": 5.0}.items():
        rows.append(planted.row("end_to_end", ms, implementation=name, phase="train_step", **cell))
    here = planted.evidence(*rows)
    of_readme = re.search(r" {4}{% block notes.*endblock %}\n", README, re.DOTALL)[0]
    frame = '{% extends "page.md.j2" %}{% block question %}Ours: why?{% endblock %}'
    found = re.findall(r"```jinja\n(.*?)```", TEXTS["your-own-words.md"], re.DOTALL)
    words, title, note, lines, across = found
    lines = f"{{% block page %}}{lines}{{{{ every_row('lrpe') }}}}{{% endblock %}}"
    said = {
        '{% extends "lmperf/course.md.j2" %}' + words: "I broadcast weights from rank 0",
        title: "# End to end: what did our changes gain?",
        frame + note: "Our kernel is 3.00x",
        frame + of_readme: "Our kernel is 3.00x",
        frame + lines: "| size | eager (ms) | tokens/s |",
        frame + f"{{% block page %}}{across}{{% endblock %}}": "| train step, over eager |",
    }
    for number, (template, words) in enumerate(said.items()):
        name = f"ours_{number}"
        (tmp_path / f"{name}.md.j2").write_text(template)
        assert words in planted.page(name, here, own=tmp_path).text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r'\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"', text)
    for link in (one or other for one, other in links):
        path, _, heading = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue  # on the web
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not heading or heading in _headings(target), link


def _headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    names = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def test_pages_name_no_file_that_is_missing():
    folders = "src|tests|docs|tools|rules|envs|profiles|templates|config"
    named = {
        one for text in TEXTS.values() for one in re.findall(rf"`((?:{folders})/[^`<]+)`", text)
    }
    # The reader's.
    ours = {"src/lmperf/benchmarks/softmax.py", "templates/softmax.md.j2", "tests/adapters.py"}
    assert {one for one in named - ours if not (ROOT / one).exists()} == set()


def test_every_sign_and_word_of_a_cell_is_explained():
    lines = TEXTS["method.md"].splitlines()
    explained = [line.split(" | ")[0].removeprefix("| ") for line in lines if line[:2] == "| "]
    assert {sign for sign, _ in SIGNS.values()} <= {words[0] for words in explained}
    named = {one for words in explained for one in words.split(", ")}
    states = {*STATUSES} - {"ok", "oom", "failed_check"}
    words = {STATUSES[state] for state in states} | {"OOM", "withheld", "to measure"}
    assert words | {NOT_COMPARED.replace("_", " ")} <= named


def test_readme_has_at_most_three_screens():
    lines = README.splitlines()
    assert len(lines) <= LINES
    assert not [line for line in lines if len(line) > WIDTH and not line.startswith("|")]


def test_readme_shows_the_first_table_of_the_report():
    assert updated(README, ROOT) == README, "run: python tools/readme_table.py"
    table, signs = re.search(r"((?:^\|.*\n)+)\n(.*)", README, re.MULTILINE).groups()
    assert {sign for sign, _ in SIGNS.values() if sign in table} <= set(signs)
