"""Cells measured now: with verdicts, and nothing written unless it is to be kept."""

import pytest

from lmperf.benchmark import Own
from lmperf.commands import run
from lmperf.commands.run import _smallest
from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.plan import Project

pytestmark = pytest.mark.process

PHASES = ["forward", "backward", "forward + backward"]


def files(folder):
    return sorted(path for path in (folder / "report").rglob("*") if path.is_file())


def test_cells_are_measured_and_printed_with_verdicts_and_nothing_is_written(folder, lmperf):
    code, out, said = lmperf("run", "flash_attention", "--phases", "forward")
    assert code == 0, said
    assert out.startswith("forward, batch 1, heads 1, length 32, d_head 16, float32, causal")
    (line,) = [line for line in out.splitlines() if line.startswith("SDPA")]
    assert any(line.count(word) for word in ("faster", "slower", "same", "unresolved"))
    assert "over PyTorch" in out and "backward" not in out
    assert not (folder / "report").exists()


def test_what_is_kept_is_evidence_of_whole_cells(folder, lmperf):
    narrow = ("--implementations", "sdpa", "--over", "sdpa", "--keep")
    code, out, said = lmperf("run", "flash_attention", *narrow)
    assert code == 0, said
    path, *table = out.splitlines()
    assert path == "report/here/evidence/flash_attention.csv"
    rows = (folder / path).read_text().splitlines()[1:]
    assert len(rows) == 2 * len(PHASES) and not any("PyTorch" in line for line in table)
    _, listed, _ = lmperf("list", "flash_attention")
    assert listed.count(": fresh") == 2


def test_a_function_of_ones_own_is_tried_and_a_wrong_one_ends_with_1(folder, lmperf):
    narrow = ("--phases", "forward", "--implementations", "eager")
    code, out, said = lmperf("try", "own_of_commands:attention", "--as", "attention", *narrow)
    assert code == 0, said
    assert [line.split()[0] for line in out.splitlines()[3:5]] == ["PyTorch", "mine"]
    code, out, said = lmperf("try", "own_of_commands:doubled", "--as", "attention", *narrow)
    assert code == 1
    assert "gate failed, withheld" in out
    assert "- gate failed, withheld, mine (1 row): " in out and "float64 reference" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["try", "own_of_commands:absent", "--as", "attention"], "has no absent"),
        (["try", "own_absent:attention", "--as", "attention"], "there is no module own_absent"),
        (["try", "no function", "--as", "attention"], "it must be a function as package.module"),
        (["try", "a:b", "--as", "ceilings"], "'ceilings' is not one of 'attention', 'lrpe'"),
        (["try", "a:b", "--as", "lrpe", "--in", "memory"], "--in memory: must be one that takes"),
        (["run", "nothing"], "there is no benchmark nothing; there are: attention"),
        (["run", "flash_attention", "--only", "seq_len=31"], "no seq_len=31 in the grid"),
        (["run", "flash_attention", "--over", "flex"], "--over: flex is not measured here"),
        (["run", "flash_attention", "--keep", "--phases", "forward"], "leave --phases out"),
    ],
)
def test_what_cannot_be_measured_is_one_line(lmperf, arguments, words):
    code, out, said = lmperf(*arguments)
    assert (code, out, said.count("\n")) == (2, "", 1), said
    assert words in said


def test_a_function_is_tried_in_the_smallest_cell(folder):
    own = {"implementations.flash_attention.mine": "own_of_commands:attention"}
    own["grid.flash_attention.seq_len"] = [64, 32]
    config = load_config(folder / "config/config.yaml", own)
    assert ("seq_len", "32") in _smallest(Project(config, folder).plan("flash_attention"))


def test_what_the_configuration_leaves_out_can_be_measured_now(lmperf):
    narrow = ("--only", "subject=float32 + float32,experiment=accumulation")
    code, out, said = lmperf("run", "mixed_precision", *narrow)
    assert code == 0, said
    assert "10.0001" in out or "ok" in out


def test_one_that_takes_no_part_in_a_benchmark_is_not_right(folder, lmperf):
    step = "def step(model, optimizer, tokens, targets):\n    return None\n"
    (folder / "own_step_of_commands.py").write_text(step)
    grid = "grid.profiles={size: [tiny], context_length: [16], batch: [1]}"
    code, out, said = lmperf(
        *("try", "own_step_of_commands:step", "--as", "model", "--in", "profiles"),
        *("--config", grid),
    )
    assert code == 1, out + said
    assert "a train step is timed end to end, and nowhere else" in out


def test_a_function_is_tried_by_itself_whatever_else_is_configured(folder, lmperf, monkeypatch):
    config = folder / "config/config.yaml"
    own = "mine: {use: 'own_of_commands:doubled', numerics: rounded_scores}, other: 'own_no:x'"
    (folder / "own_no.py").write_text("raise RuntimeError('broken')\n")
    config.write_text(f"{config.read_text()}implementations: {{flash_attention: {{{own}}}}}\n")
    found = []

    def measured_now(project, stem, wanted, over):
        found.append((project.config.own(stem)["mine"], [*wanted.implementations]))
        raise UserError("no further")

    monkeypatch.setattr(run, "_measured_now", measured_now)
    assert lmperf("try", "own_of_commands:attention", "--as", "attention")[2].endswith("further\n")
    assert found == [(Own("own_of_commands:attention"), ["eager", "sdpa", "mine"])]
