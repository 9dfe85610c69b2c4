"""Tests of README.md and docs/: commands of some sections run, and the example can be measured.

`tests/test_docs.py` checks that every other command parses, and the links.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from readme_table import updated

from lmperf import cli
from lmperf.benchmarks import load
from lmperf.cli import main
from lmperf.evidence.wanted import Chosen, Wanted, beyond_the_grid, select
from lmperf.reporting.results import SIGNS

pytestmark = [pytest.mark.process, pytest.mark.snakemake]

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}
README = PAGES["README.md"]
# Six screens.
LINES, WIDTH = 150, 120
CONFIG = """
preset: cpu
machine: here
benchmarks: [softmax, mixed_precision]
grid:
  softmax: {seq_len: [64, 128]}
  mixed_precision: {experiment: [accumulation], subject: ["float32 + float32"]}
"""
# Small cells of the benchmarks in the section "Every day".
EVERY_DAY = """
preset: cpu
machine: here
benchmarks: [attention, flash_attention, lrpe]
grid:
  attention:
    {batch: [1], d_head: [16, 64], seq_len: [64], dtype: [float32], implementation: [eager]}
  flash_attention:
    {batch: [1], heads: [1], seq_len: [64], d_head: [16], dtype: [float32],
     implementation: [eager, tiled, sdpa]}
  lrpe: {batch: [1], heads: [1], shape: ["8x8"], d_head: [16], implementation: [eager, copy]}
"""
# Tests that are parametrized over every benchmark, or read the declarations of all sections.
SUITE = ("tests/test_benchmark.py", "tests/reporting/test_render.py")
CHOSEN = "softmax or without_torch or names_are_unique or renders_without_evidence"


def files_of(page: str) -> dict[str, str]:
    """Return path -> content of the files that a page prints."""
    pattern = r"`((?:src|templates)/[^`]+)`[^`]*\n```\w+\n(.*?)```"
    return dict(re.findall(pattern, PAGES[page], re.DOTALL))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout to which the example benchmark of the README is added."""
    root = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("*.pyc.*", "*.egg-info")
    for name in ("src", "templates", "config", "profiles", "rules", "tests", "tools"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("Snakefile", "README.md", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, root)
    with contextlib.chdir(root):
        assert main(["new", "softmax"]) == 0
    return root


def commands_of(page, section):
    """Return the command lines in a section of a page that call lmperf."""
    text = PAGES[page].split(f"## {section}\n")[1].split("\n## ")[0].replace("\\\n", "")
    return re.findall(r"^    (lmperf .*)$", text, re.MULTILINE)


def command(line, capfd, expected=0):
    """Run a command line of the README, follow its redirection, and return its stdout.

    expected: the exit code.
    """
    words = shlex.split(line, comments=True)
    target = None
    if ">" in words:
        words, (target,) = words[: words.index(">")], words[words.index(">") + 1 :]
    capfd.readouterr()
    code = main(words[1:])
    out, error = capfd.readouterr()
    assert code == expected, f"{line}\n{out}{error}"
    if target:
        Path(target).write_text(out)
    return out


def run(root, *command):
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_readme_has_at_most_six_screens():
    lines = README.splitlines()
    assert len(lines) <= LINES
    assert not [line for line in lines if len(line) > WIDTH and not line.startswith("|")]


def test_readme_shows_the_first_table_of_the_report():
    assert updated(README, ROOT) == README, "run: python tools/readme_table.py"
    table, signs = re.search(r"((?:^\|.*\n)+)\n(.*)", README, re.MULTILINE).groups()
    assert {sign for sign, _ in SIGNS.values() if sign in table} <= set(signs)


def test_readme_benchmark_has_two_files():
    assert set(files_of("add-a-benchmark.md")) == {
        "src/lmperf/benchmarks/softmax.py",
        "templates/softmax.md.j2",
    }


def test_new_writes_the_files_of_the_readme(checkout):
    for path, content in files_of("add-a-benchmark.md").items():
        assert (checkout / path).read_text() == content


def examples():
    """Return the command lines with `--only` in the pages and in help texts."""
    texts = [*PAGES.values(), *(command.help for command in cli.lmperf.commands.values())]
    texts = [text.replace("\\\n", "") for text in texts]
    found = [line for text in texts for line in re.findall(r"^ *(lmperf .*--only.*)$", text, re.M)]
    return [pytest.param(line, id=line[:60]) for line in found]


@pytest.mark.parametrize("line", examples())
def test_example_selects_cells_on_a_cpu_and_on_a_gpu(line):
    """An example of `run`, `compare` or `measure` selects cells in every preset."""
    _, name, *arguments = shlex.split(line, comments=True)
    given = cli.lmperf.commands[name].make_context(name, arguments).params
    stem = given["benchmarks"][0] if name == "compare" else given["stem"]
    wanted = Wanted((), given["only"], given.get("implementations", ()), given.get("phases", ()))
    for preset in load(stem).grids:
        benchmark = load(stem)
        config, machine = SimpleNamespace(grid_of=lambda _: {}), SimpleNamespace(devices=2)
        project = SimpleNamespace(config=config, preset=preset, machine=machine)
        offered = Chosen(benchmark, benchmark.cases(preset))
        if name != "measure":  # it measures cells of the grid only
            offered = beyond_the_grid(project, offered, wanted)
        assert select([offered], wanted)[0].cases, preset


def test_readme_commands_work(tmp_path, monkeypatch, capfd):
    for name in ("templates", "examples", "config"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "config/config.yaml").write_text(EVERY_DAY)
    monkeypatch.chdir(tmp_path)
    lines = commands_of("commands.md", "Every day") + commands_of("README.md", "Your own kernel")
    said = {line: command(line, capfd) for line in lines}
    assert len(said) == 11
    assert Path("table.tex").read_text().startswith("% Plain PyTorch attention")
    for line, words in {
        "lmperf doctor": "flash_attention: 3 cases",
        "lmperf list flash_attention": "sdpa: missing",
        "lmperf list attention --config": "seq_len=256",
        "lmperf run flash_attention": "over SDPA",
        "lmperf measure attention": "report/here/evidence/attention.csv",
        "lmperf show attention ": "Plain PyTorch attention",
        "lmperf try examples.student_attention": "mine",
        "lmperf try examples.student_lrpe": "mine",
    }.items():
        (printed, *_) = (text for given, text in said.items() if given.startswith(line))
        assert words in printed, line
    assert not Path("report/here/evidence/flash_attention.csv").exists()


def test_failing_example_is_withheld_as_documented(tmp_path, monkeypatch, capfd):
    """The code of the worked example, before and after the correction that the page names."""
    page = PAGES["bring-your-own.md"].split("## A failing example")[1]
    (code,) = re.findall(r"```python\n(def attention.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"^    (lmperf try .*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    Path("my_kernels").mkdir()
    Path("my_kernels/wrong.py").write_text(code)
    said = command(line, capfd, expected=1)
    assert "withheld, mine (2 rows): dk differs from the float64 reference" in said
    assert "9.8e-01 / 1.5e-05" in said
    mended = code.replace("q.shape[-1]", "q.shape[-1] ** 0.5", 1)
    assert mended != code
    Path("my_kernels/right.py").write_text(mended)
    assert "withheld" not in command(line.replace("wrong", "right"), capfd)


def test_diff_of_the_readme_compares_two_results(monkeypatch, capfd):
    monkeypatch.chdir(ROOT)
    (line,) = (line for line in commands_of("README.md", "Before and after") if " diff " in line)
    assert "nvidia-h200@HEAD -> nvidia-h200" in command(line, capfd)


def test_readme_benchmark_is_measured_and_rendered(checkout):
    (checkout / "config/config.yaml").write_text(CONFIG)
    run(checkout, "snakemake", "--cores", "1", "report/report.md")
    write_up = (checkout / "report/report.md").read_text()
    links = re.findall(r"\]\(here/(\w+)\.md\)", write_up)
    assert links == ["mixed_precision", "softmax", "method"]
    page = (checkout / "report/here/softmax.md").read_text()
    assert re.search(r"\| 128 \| [\d.]+ \([\d.]+-[\d.]+\)", page), page


def test_suite_passes_with_the_readme_benchmark(checkout):
    (checkout / "config/config.yaml").write_text((ROOT / "config/config.yaml").read_text())
    run(checkout, "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", CHOSEN, *SUITE)
