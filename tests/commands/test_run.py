"""Tests of `lmperf run` and `lmperf try`, which measure cells and print them with verdicts."""

import re

import pytest
from made_up import OK, pretend, rounds

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load
from lmperf.commands import run
from lmperf.config.machine_names import slug
from lmperf.errors import UserError

pytestmark = pytest.mark.process


def test_run_prints_verdicts_and_stores_nothing(folder, lmperf, monkeypatch):
    times = {"eager": 2.0, "sdpa": 1.0}
    together = OK | {"together": "one"}
    pretend(monkeypatch, lambda case, _: together | rounds(times[case.implementation]))
    code, out, said = lmperf("run", "flash_attention", "--phases", "forward")
    assert code == 0, said
    assert out.startswith("Forward, batch 1, heads 1, length 32, d_head 16, float32, causal")
    (line,) = [line for line in out.splitlines() if line.startswith("SDPA")]
    assert "2.00x" in line and "faster" in line
    assert "over PyTorch" in out and "backward" not in out
    assert not (folder / "report").exists()


@pytest.fixture
def usable(monkeypatch):
    """Take every function as one that can be used, without a process that calls it."""
    monkeypatch.setattr(run, "problem_of", lambda *_: "")


def test_try_shows_the_errors_of_each_tensor(lmperf, monkeypatch, usable):
    errors = {"max_error": 3e-6, "error_dq": 1e-6, "error_dk": 2e-6, "error_dv": 3e-6}
    pretend(monkeypatch, lambda *_: OK | rounds(1.0) | errors)
    narrow = ("--as", "attention", "--implementations", "eager", "--phases", "backward", "--all")
    code, out, said = lmperf("try", "my_functions:attention", *narrow)
    assert code == 0, said
    assert out.startswith("flash_attention: my_functions:attention beside PyTorch; batch 1, ")
    assert out.splitlines()[0].endswith(", CUDA graph False; about 15 s")
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["PyTorch", "mine"], out
    header = next(line for line in out.splitlines() if "error of" in line)
    assert all(f"error of {tensor}" in header for tensor in ("dQ", "dK", "dV")), said
    (mine,) = (line for line in out.splitlines() if line.startswith("mine"))
    shown = re.findall(r"\d\.\de-\d\d", mine)
    assert shown == ["3.0e-06", "1.0e-05", "1.0e-06", "2.0e-06", "3.0e-06"], "with its bound"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["try", "my_absent:attention", "--as", "attention"],
            "there is no module my_absent",
        ),
        (["try", "no function", "--as", "attention"], "it must be a function as package.module"),
        (["try", "my/styles.py:Flash", "--as", "attention"], "Flash'; write my.styles:Flash"),
        (["try", "a:Flash.apply", "--as", "attention"], "is 'a:Flash.apply'; write a:Flash"),
        (["run", "flash_attention", "--only", "seq_len=0"], "--only: seq_len is '0'; it must be"),
        (["run", "flash_attention", "--over", "flex"], "--over: flex is not measured here"),
        (["run", "leaderboard"], "leaderboard has no cells for the preset cpu"),
        (["run"], "name a benchmark, or a row by --row KEY"),
        (["run", "flash_attention", "--row", "k"], "name a benchmark, or a row by --row KEY"),
        (["run", "--row", "k"], "add --against MACHINE"),
        (["run", "attention", "--against", "elsewhere"], "no evidence of machine elsewhere"),
        (["run", "attention", "--against", "../x"], "MACHINE is '../x'; it must be a name"),
        (["run", "--row", "k", "--against", "here", "--phases", "forward"], "leave --only and"),
    ],
)
def test_invalid_request_prints_one_line_and_exits_with_2(lmperf, arguments, words):
    code, out, said = lmperf(*arguments)
    assert (code, out, said.count("\n")) == (2, "", 1), said
    assert words in said


TWO_LENGTHS = """
preset: cpu
machine: here
benchmarks: [flash_attention]
grid: {flash_attention: {seq_len: [64, 32], d_head: [16], dtype: [float32]}}
"""


def test_try_checks_the_smallest_cell_first(folder, lmperf, monkeypatch, usable):
    (folder / "config/config.yaml").write_text(TWO_LENGTHS)
    measured = pretend(monkeypatch, lambda *_: OK | rounds(1.0))
    code, out, said = lmperf("try", "my_functions:attention", "--as", "attention")
    assert code == 0, said
    shown = [[(case.axes["seq_len"], case.implementation) for case in of] for of in measured]
    assert shown == [[(32, "mine")], [(64, "sdpa"), (64, "mine")]]
    assert "its check is passed" in said
    assert out.count("length 64") == 3 and "length 32" not in out, "the first line and two tables"


def test_try_measures_nothing_larger_after_a_failed_check(folder, lmperf, monkeypatch, usable):
    (folder / "config/config.yaml").write_text(TWO_LENGTHS)
    failed = {"status": "failed_check", "max_error": 1.0, "error_bound": 1e-5, "reason": "dk off"}
    measured = pretend(monkeypatch, lambda *_: failed)
    code, out, said = lmperf("try", "my_functions:attention", "--as", "attention")
    assert code == 1 and len(measured) == 1
    assert "it fails its check in the smallest cell, so nothing else was measured" in said
    (mine, _) = (line for line in out.splitlines() if line.startswith("mine"))
    assert mine.split() == ["mine", "withheld", "1.0e+00", "/", "1.0e-05"]
    assert "gate failed, withheld, mine (2 rows): dk off" in out


@pytest.mark.parametrize(("options", "limit_s"), [((), 30), (("--option", "compiled=true"), 300)])
def test_try_has_longer_for_a_model_that_is_compiled(folder, lmperf, monkeypatch, options, limit_s):
    limits = []
    monkeypatch.setattr(
        "lmperf.commands.run.problem_of", lambda *given: limits.append(given[3]) or "it is broken"
    )
    code, _, said = lmperf("try", "my_functions:doubled", "--as", "model", *options)
    assert (code, limits) == (2, [limit_s]) and said == "lmperf: it is broken\n"


def test_try_of_a_function_that_hangs_ends_after_one_limit(folder, lmperf, usable):
    hangs = "import time\n\ndef attention(q, k, v, causal=False):\n    time.sleep(600)\n"
    (folder / "my_hangs.py").write_text(hangs)
    narrow = ("--implementations", "eager", "--limit", "2")
    code, out, said = lmperf("try", "my_hangs:attention", "--as", "attention", *narrow)
    assert code == 1
    assert "mine (1 row): no answer within 2 s\n" in out
    assert "mine (1 row): no answer within 2 s in its forward" in out
    assert "lmperf: a step took longer than 2 s; --limit SECONDS allows more\n" in said
    assert said.endswith("it fails its check in the smallest cell, so nothing else was measured\n")
    assert "PyTorch" not in out.partition("\n")[2]


def test_error_in_a_backward_pass_names_a_line_of_the_user_alone(folder, lmperf):
    uses = "{mine: 'my_functions:in_place', detached: 'my_functions:detached'}"
    both = ("--config", f"implementations.flash_attention={uses}")
    narrow = ("--implementations", "mine,detached", "--phases", "backward")
    code, out, said = lmperf("run", "flash_attention", *narrow, *both)
    text = (folder / "my_functions.py").read_text()
    line = 1 + text.splitlines().index("    out = weights @ v")
    (mine,) = (one for one in out.splitlines() if "mine (1 row): " in one)
    (other,) = (one for one in out.splitlines() if "detached (1 row): " in one)
    assert code == 1 and "modified by an inplace operation" in mine
    assert f"(my_functions.py:{line})" in mine
    assert "its result cannot be differentiated: element 0 of tensors does" in other
    assert ".py" not in other
    assert len([one for one in said.splitlines() if "traceback" in one]) == 1, "of mine"


def test_try_needs_no_configuration(folder, lmperf, monkeypatch):
    (folder / "config/config.yaml").unlink()
    (folder / "my_model.py").write_text("def way(model):\n    return model\n")
    monkeypatch.setattr(run, "_measured_now", lambda *_, **__: slug("/"))
    said = lmperf("try", "my_model:way", "--as", "model", "--config", "preset=cpu")[2]
    assert said.startswith("lmperf: MACHINE is '/'")
    assert not (folder / "config/config.yaml").exists()


def test_try_takes_several_values_of_an_axis(lmperf, monkeypatch, usable):
    found = []

    def measured_now(project, chosen, *_, **__):
        found.extend((*case.axes.values(), case.implementation) for case in chosen.cases)
        raise UserError("no further")

    monkeypatch.setattr(run, "_measured_now", measured_now)
    grid = "{seq_len: [32, 64, 128], d_head: [32, 16], dtype: [float32, tf32, bfloat16]}"
    several = ("--only", "seq_len=32,64,dtype=float32,bfloat16", "--implementations", "sdpa")
    lmperf(
        *("try", "my_functions:attention", "--as", "attention", *several),
        *("--config", f"grid.flash_attention={grid}"),
    )
    axes = [*load("flash_attention").axes]
    position = {axis.name: index for index, axis in enumerate(axes)}
    assert {case[position["seq_len"]] for case in found} == {32, 64}
    assert {case[position["dtype"]] for case in found} == {"float32", "bfloat16"}
    assert {case[position["d_head"]] for case in found} == {32}, "the first one of the grid"
    assert {case[-1] for case in found} == {"sdpa", "mine"} and len(found) == 8


@pytest.mark.parametrize(
    ("kind", "peer", "arguments", "preset", "cell"),
    [
        ("ddp", "ddp", "module", "cpu", ("tiny", 32)),
        ("fsdp", "fsdp2", "module, compute_dtype=None", "gpu", ("0.97B", 1024)),
        (
            *("sharded_optimizer", "zero_redundancy", "params, optimizer_cls, **options"),
            *("cpu", ("tiny", 32)),
        ),
    ],
)
def test_try_of_a_strategy_measures_its_peer_only(
    folder, lmperf, monkeypatch, usable, kind, peer, arguments, preset, cell
):
    (folder / "my_strategy.py").write_text(f"def wrap({arguments}):\n    pass\n")
    found = []

    def measured(project, chosen, check):
        found.extend(chosen.cases)
        raise UserError("no further")

    monkeypatch.setattr(run, "_measured", measured)
    monkeypatch.setattr("lmperf.evidence.machine.Machine.devices", 2)
    where = ("--config", f"preset={preset}")
    _, out, said = lmperf("try", "my_strategy:wrap", "--as", kind, *where)
    assert "no further" in said, said
    assert {case.implementation for case in found} == {peer, "mine"} and len(found) == 2
    axes = found[0].axes
    assert (axes["size"], axes["context_length"]) == cell
    size, batch = {"cpu": ("tiny", 4), "gpu": ("large", 32)}[preset]
    assert (axes["batch"], axes["ranks"]) == (batch, 2)
    assert out.startswith("distributed: my_strategy:wrap beside ")
    assert f"; size {size}, context {cell[1]}, batch {batch}, ranks 2" in out


def test_run_measures_benchmarks_outside_the_configuration(lmperf, monkeypatch):
    pretend(monkeypatch, lambda *_: {"status": "ok", "value": 12.5})
    narrow = ("--only", "subject=float32 + float32,experiment=accumulation")
    code, out, said = lmperf("run", "mixed_precision", *narrow)
    assert code == 0, said
    assert "12.5" in out


def test_strategies_need_several_devices(lmperf, monkeypatch):
    monkeypatch.setattr("lmperf.evidence.machine.Machine.devices", 1)
    said = lmperf("run", "distributed")[2]
    assert said == "lmperf: distributed needs 2 devices; this machine has 1\n"


def test_run_measures_cells_that_preset_quick_leaves_out(lmperf, monkeypatch):
    measured = pretend(monkeypatch)
    cell = ("--only", "d_head=16,seq_len=33,dtype=float32", "--implementations", "eager")
    assert lmperf("run", "attention", *cell, "--config", "preset=quick")[0] == 0
    assert len(measured) == 1


def test_try_ignores_other_custom_implementations(folder, lmperf, monkeypatch, usable):
    config = folder / "config/config.yaml"
    custom = "mine: {use: 'my_functions:doubled', tolerance: rounded_scores}, other: 'my_broken:x'"
    (folder / "my_broken.py").write_text("raise RuntimeError('broken')\n")
    config.write_text(f"{config.read_text()}implementations: {{flash_attention: {{{custom}}}}}\n")
    found = []

    def measured_now(project, chosen, *_, **__):
        found.append((chosen.benchmark.external["mine"], chosen.implementations))
        raise UserError("no further")

    monkeypatch.setattr(run, "_measured_now", measured_now)
    assert lmperf("try", "my_functions:attention", "--as", "attention")[2].endswith("further\n")
    assert found == [
        (
            Implementation("mine", "my_functions:attention", origin="custom"),
            ["sdpa", "mine"],
        )
    ]
