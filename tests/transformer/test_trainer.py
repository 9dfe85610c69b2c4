"""`Trainer` trains as PyTorch's eager AdamW does with the same settings, and can be resumed."""

import runpy
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.sizes import SHORT, SIZES, ModelSize
from lmperf.transformer.steps import ACCUMULATED_GRAPH, CLIPPED_GRAPH, SDPA_GRAPH
from lmperf.transformer.trainer import Trainer
from lmperf.transformer.training import autocast, decay_groups

AUTOCAST, VOCAB, CONTEXT = "autocast_bfloat16", 1000, 16
RATE, DECAY, MAX_NORM = 1e-3, 0.1, 1.0
EXAMPLE = Path(__file__).parents[2] / "examples/train.py"


@pytest.fixture(autouse=True)
def without_compiler(small_models, monkeypatch):
    """Replace torch.compile by a function that returns its argument, to save half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def model_on(device: str) -> TransformerLM:
    torch.manual_seed(0)
    with torch.device(device):
        return TransformerLM.of_size(SIZES["for tests"], VOCAB, CONTEXT)


def trainer_of(model: TransformerLM, dtype: str = AUTOCAST, micro_batch: int | None = None):
    return Trainer(
        model,
        dtype=dtype,
        learning_rate=RATE,
        groups=decay_groups(model, DECAY),
        max_norm=MAX_NORM,
        micro_batch=micro_batch,
    )


def batch(number: int, sequences: int = 4, context: int = CONTEXT):
    chance = torch.Generator().manual_seed(number)
    return torch.randint(VOCAB, (2, sequences, context), generator=chance).unbind(0)


def weights_of(model: TransformerLM) -> torch.Tensor:
    return torch.cat([p.detach().double().cpu().flatten() for p in model.parameters()])


def eager_steps(model: TransformerLM, dtype: str, count: int, parts: int, device: str):
    """Losses and norms of PyTorch's own AdamW with two groups, clipping and accumulation."""
    decaying = [p for p in model.parameters() if p.ndim == 2 and p is not model.embedding.weight]
    kept = {id(p) for p in decaying}
    other = [p for p in model.parameters() if id(p) not in kept]
    groups = [{"params": decaying, "weight_decay": DECAY}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    losses, norms = [], []
    for number in range(count):
        optimizer.zero_grad()
        tokens, targets = (part.to(device) for part in batch(number))
        loss = 0.0
        for part in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
            with autocast(dtype, device):
                share = cross_entropy(model(part[0]), part[1]) / parts
            share.backward()
            loss += float(share.detach())
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)))
        optimizer.step()
        losses.append(loss)
    return losses, norms


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype, off, micro_batch", [("float32", 1e-3, 2), (AUTOCAST, 0.05, 2), (AUTOCAST, 0.05, None)]
)
def test_ten_steps_are_those_of_eager_adamw(dtype, off, micro_batch, device="cpu"):
    model = model_on(device)
    eager, before = deepcopy(model), weights_of(model)
    trainer = trainer_of(model, dtype, micro_batch)
    losses, norms = [], []
    for number in range(10):
        losses.append(float(trainer.step(*batch(number))))
        norms.append(float(trainer.gradient_norm))
    expected = eager_steps(eager, dtype, 10, 4 // (micro_batch or 4), device)
    assert losses == pytest.approx(expected[0], rel=1e-3)
    assert norms == pytest.approx(expected[1], rel=0.01) and max(norms) > MAX_NORM
    moved = weights_of(eager) - before
    assert (weights_of(model) - before - moved).norm() < off * moved.norm()


def test_gradients_of_micro_batches_build_up_in_float32():
    """Those of sixteen parts are those of the whole batch; weights are bf16."""
    whole, parts = (trainer_of(model_on("cpu"), "bfloat16", size) for size in (16, 1))
    for trainer in (whole, parts):
        trainer.step(*batch(0, 16))
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert one.grad.dtype == other.grad.dtype == torch.float32
        assert (one.grad - other.grad).norm() < 0.02 * one.grad.norm()


@pytest.mark.parametrize("dtype", [AUTOCAST, "bfloat16"])
def test_resumed_training_is_the_uninterrupted_one(dtype, device="cpu"):
    trainer = trainer_of(model_on(device), dtype, 2)
    for number in range(2):
        trainer.step(*batch(number))
    saved = deepcopy(trainer.state_dict())
    expected = [float(trainer.step(*batch(number))) for number in (2, 3)]
    torch.manual_seed(5)
    with torch.device(device):
        other = TransformerLM.of_size(SIZES["for tests"], VOCAB, CONTEXT)
    resumed = trainer_of(other, dtype, 2)
    resumed.step(*batch(9))  # its weights, moments and graph are of no consequence
    resumed.load_state_dict(saved)
    assert [float(resumed.step(*batch(number))) for number in (2, 3)] == expected
    assert torch.equal(weights_of(trainer.model), weights_of(resumed.model))


def test_learning_rate_of_a_schedule_is_used(device="cpu"):
    trainer = trainer_of(model_on(device))
    trainer.step(*batch(0))
    for rate, moves in ((0.0, False), (0.1, True)):
        trainer.learning_rate = rate
        before = weights_of(trainer.model)
        trainer.step(*batch(1))
        assert torch.equal(before, weights_of(trainer.model)) != moves
        assert trainer.learning_rate == pytest.approx(rate)


@pytest.mark.slow
def test_sequences_of_several_lengths_train_one_model(device="cpu"):
    trainer = trainer_of(model_on(device))
    first = float(trainer.loss(*batch(0)))
    for number in range(20):
        trainer.step(*batch(0, context=(CONTEXT, 8)[number % 2]))
    assert float(trainer.loss(*batch(0))) < first - 1
    steps = {float(state["step"]) for state in trainer.optimizer.state.values()}
    assert steps == {20.0}


@pytest.mark.parametrize(
    "tokens, targets, words",
    [
        ((4, 32), (4, 31), r"tokens are \[4, 32\] and targets \[4, 31\]"),
        ((3, 32), (3, 32), "3 sequences do not split into micro-batches of 2"),
    ],
)
def test_batches_that_cannot_be_trained_on_are_refused(tokens, targets, words):
    trainer = trainer_of(model_on("cpu"), micro_batch=2)
    shapes = (torch.zeros(shape, dtype=torch.int64) for shape in (tokens, targets))
    with pytest.raises(ValueError, match=words):
        trainer.step(*shapes)


@pytest.mark.parametrize(
    "ranks, options, words",
    [
        (1, "--zero1", "--zero1 needs several processes"),
        (1, "--zero1 --float8", "--zero1 needs several processes"),
        (2, "--zero1 --float8", "--float8 trains on one GPU, not on 2"),
        (2, "--zero1 --dtype bfloat16", "--dtype bfloat16 trains on one GPU"),
        (2, "--batch 4 --micro-batch 4", "--batch 4 is no multiple of 8"),
    ],
)
def test_example_refuses_wrong_use_in_a_line(ranks, options, words, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    monkeypatch.setattr(sys, "argv", ["train.py", "tokens.bin", *options.split()])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and len(printed.splitlines()) == 1 and words in printed


@pytest.mark.slow
def test_example_trains_saves_and_goes_on(tmp_path, monkeypatch, capsys):
    tokens, saved = tmp_path / "tokens.bin", tmp_path / "run.pt"
    tokens.write_bytes(bytes(2 * 20_000))
    monkeypatch.setitem(SHORT, "for tests", ModelSize(64, 128, 2, 4))
    options = "--vocab 64 --size for\ttests --context 32 --batch 4 --micro-batch 2 --every 2"
    arguments = [word.replace("\t", " ") for word in options.split(" ")]
    arguments += ["--warm-up", "1", "--device", "cpu", "--checkpoint", str(saved)]

    def lines(steps: int) -> list[str]:
        given = ["train.py", str(tokens), *arguments, "--steps", str(steps)]
        monkeypatch.setattr(sys, "argv", given)
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    assert [line.split(":")[0] for line in lines(2)] == ["step 2"]
    assert [line.split(":")[0] for line in lines(4)] == ["step 4"]
    assert int(torch.load(saved)["step"]) == 4


def test_trainer_clips_and_splits_as_its_maker_does():
    clipping = Trainer(model_on("cpu"), CLIPPED_GRAPH)
    clipping.step(*batch(0))
    assert float(clipping.gradient_norm) > clipping.optimizer.max_norm == 1.0
    splitting = Trainer(model_on("cpu"), ACCUMULATED_GRAPH)
    with pytest.raises(ValueError, match="6 sequences do not split into micro-batches of 4"):
        splitting.step(*batch(0, 6))


@pytest.mark.parametrize("maker", [CLIPPED_GRAPH, ACCUMULATED_GRAPH, SDPA_GRAPH])
def test_every_graph_of_the_report_trains(maker):
    model = model_on("cpu")
    trainer = Trainer(model, maker, groups=decay_groups(model, DECAY), max_norm=MAX_NORM)
    assert float(trainer.step(*batch(0))) > 0 and float(trainer.gradient_norm) > 0


@pytest.mark.gpu
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_ten_steps_of_a_graph_are_those_of_eager_adamw(micro_batch):
    test_ten_steps_are_those_of_eager_adamw(AUTOCAST, 0.05, micro_batch, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [AUTOCAST, "bfloat16"])
def test_resumed_graph_is_the_uninterrupted_one(dtype):
    test_resumed_training_is_the_uninterrupted_one(dtype, "cuda")


@pytest.mark.gpu
def test_graphs_follow_a_schedule_and_several_lengths():
    test_learning_rate_of_a_schedule_is_used("cuda")
    test_sequences_of_several_lengths_train_one_model("cuda")


@pytest.fixture
def one_gibibyte():
    """Let PyTorch take 1 GiB of the GPU's memory beyond what it has."""
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**30) / total)
    yield 2**30
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.gpu
def test_step_that_does_not_fit_says_what_does(one_gibibyte):
    trainer = trainer_of(model_on("cuda"))
    # A whole batch holds over 20 bf16 and float32 tensors of the model's width for each token.
    sequences = 2 ** (one_gibibyte // (CONTEXT * 64 * 60)).bit_length()
    with pytest.raises(torch.OutOfMemoryError, match=r"with micro_batch=\d+ it does"):
        trainer.step(*batch(0, sequences))
    assert float(trainer.step(*batch(0))) > 0
