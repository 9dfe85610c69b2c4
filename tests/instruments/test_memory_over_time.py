import pytest
import torch

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load
from lmperf.instruments.memory_over_time import (
    alive_at,
    curve,
    kept_for_backward,
    record,
    thinned,
)
from lmperf.measuring.peak_memory import peak_memory
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.sizes import SIZES, ModelSize
from lmperf.transformer.training import adamw


@pytest.fixture(scope="module")
def step():
    torch.manual_seed(0)
    model = TransformerLM(31, 32, 16, 2, 2, 32, 1e4)
    optimizer = adamw(model)
    tokens = torch.randint(0, 31, (2, 32))
    held = {}

    def forward():
        held["loss"] = cross_entropy(model(tokens), tokens)

    parts = [
        ("forward", forward),
        ("backward", lambda: held.pop("loss").backward()),
        ("optimizer", optimizer.step),
    ]

    def whole():
        optimizer.zero_grad(set_to_none=True)
        for _, run in parts:
            run()

    whole()
    peak = peak_memory(whole, "cpu", [model, optimizer, tokens])
    optimizer.zero_grad(set_to_none=True)
    # Model and optimizer must outlive the recorder, which would otherwise record their release.
    yield model, record(model, optimizer, [tokens], parts), peak


def highest(recorder):
    return max(curve(recorder), key=lambda point: sum(point[1].values()))


def test_highest_point_of_the_curve_matches_peak_memory(step):
    _, recorder, peak = step
    moment, level = highest(recorder)
    assert sum(level.values()) == pytest.approx(peak, rel=0.01)
    assert sum(block.size for block in alive_at(recorder, moment)) == sum(level.values())


def test_categories_hold_the_expected_bytes(step):
    model, recorder, _ = step
    weights = sum(4 * parameter.numel() for parameter in model.parameters())
    first, last = curve(recorder)[0][1], curve(recorder)[-1][1]
    moment = dict(reversed([(name, at) for at, name in recorder.phases]))
    before_backward = [level for at, level in curve(recorder) if at <= moment["backward"]][-1]
    assert sum(first.values()) <= weights
    assert last["parameters"] == last["gradients"] == weights
    # AdamW has two moments and a step count for every parameter.
    assert last["optimizer"] == pytest.approx(2 * weights, abs=8 * len(list(model.parameters())))
    assert before_backward["gradients"] == 0 and last["activations"] == 0
    assert before_backward["activations"] > before_backward["temporary"]


def test_thinned_memory_curve_keeps_the_peak(step):
    points = curve(step[1])
    fewer = thinned(points, 10)
    assert len(fewer) <= 10 < len(points)
    assert max(points, key=lambda p: sum(p[1].values()))[1] in [level for _, level in fewer]


def test_block_keeps_its_input_and_what_its_operators_save():
    block = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), block, torch.nn.GELU())
    kept = kept_for_backward(block, lambda: model(torch.ones(2, 4)))
    assert kept == [("float32[2, 8]", 64), ("float32[2, 8]", 64), ("float32[2, 4]", 32)]


@pytest.mark.slow
def test_users_model_is_recorded_with_lines_of_its_code(monkeypatch):
    monkeypatch.setitem(SIZES, "tiny", ModelSize(32, 64, 2, 2))
    monkeypatch.setattr("lmperf.benchmarks.memory_timeline.LARGEST", 100)
    entry = "examples.student_model:LanguageModel"
    benchmark = load("memory_timeline", {"mine": Implementation("mine", entry, origin="custom")})
    case = next(case for case in benchmark.cases("cpu") if case.implementation == "mine")
    rows = benchmark.observe(case, "train_step", "cpu", 0)
    frames = {row["frame"] for row in rows if row["table"] == "block"}
    assert any(str(frame).startswith("student_model.py:") for frame in frames), frames
    kept = [row for row in rows if row["table"] == "kept"]
    assert kept and not any(row["table"] == "stream" for row in rows)
    assert all(row["predicted_mib"] is None for row in rows if row["table"] == "category")
