import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from lmperf.measuring.peak_memory import peak_memory
from lmperf.transformer.checkpointing import Segments
from lmperf.transformer.flops import flops
from lmperf.transformer.footprint import predicted_memory
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize
from lmperf.transformer.training import adamw, autocast, train_step

# A vocabulary this small moves the peak from the loss into the blocks.
BLOCKS_DOMINATE = 64
WIDE = ModelSize(d_model=32, d_ff=512, num_layers=3, num_heads=1)
SCORES_DOMINATE = ModelSize(d_model=32, d_ff=32, num_layers=3, num_heads=8)
MANY_WEIGHTS = ModelSize(d_model=128, d_ff=512, num_layers=12, num_heads=2)
BATCH, AUTOCAST = 2, "autocast_bfloat16"


def model_and_tokens(size: ModelSize, context: int, vocab: int):
    torch.manual_seed(0)
    model = TransformerLM.of_size(size, vocab, context)
    return (
        model,
        torch.randint(0, vocab, (BATCH, context)),
        torch.randint(0, vocab, (BATCH, context)),
    )


def test_parameter_count_matches_the_model():
    with torch.device("meta"):
        model = TransformerLM.of_size(WIDE, 1000, 16)
    assert WIDE.parameters(1000) == sum(p.numel() for p in model.parameters())


def test_flops_match_flop_counter_mode():
    size, context = ModelSize(32, 48, 3, 4), 20
    model, tokens, targets = model_and_tokens(size, context, 50)
    with FlopCounterMode(display=False) as forward:
        loss = cross_entropy(model(tokens), targets)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    counted = {"forward": forward.get_total_flops(), "backward": backward.get_total_flops()}
    counted["train_step"] = sum(counted.values())
    for phase, work in counted.items():
        assert flops(size, context, BATCH, phase, 50, full=True) == work


def test_flops_leave_out_masked_scores_of_causal_attention():
    size, context = ModelSize(32, 48, 3, 4), 20
    masked = BATCH * context * (context - 1) // 2 * 2 * (2 * 32) * 3
    both = [flops(size, context, BATCH, "forward", 50, full=full) for full in (True, False)]
    assert both[0] - both[1] == masked
    assert flops(size, 1, BATCH, "forward", 50) == flops(size, 1, BATCH, "forward", 50, full=True)


def measured_peak(
    size: ModelSize, context: int, vocab: int, dtype: str, phase: str, checkpoints: dict
) -> int:
    model, tokens, targets = model_and_tokens(size, context, vocab)
    if phase == "forward":

        def forward():
            with torch.no_grad(), autocast(dtype, "cpu"):
                return model(tokens)

        return peak_memory(forward, "cpu", [model, tokens, targets])
    run, optimizer = Segments(model, *checkpoints.values()) if checkpoints else model, adamw(model)

    def step():
        return train_step(run, optimizer, tokens, targets, dtype)

    step()
    optimizer.zero_grad(set_to_none=True)
    return peak_memory(step, "cpu", [model, optimizer, tokens, targets])


@pytest.mark.slow
@pytest.mark.parametrize(
    "size, context, vocab, dtype, phase, checkpoints",
    [
        (WIDE, 64, VOCAB_SIZE, AUTOCAST, "train_step", {}),
        (WIDE, 128, BLOCKS_DOMINATE, AUTOCAST, "train_step", {}),
        (WIDE, 128, BLOCKS_DOMINATE, "float32", "train_step", {}),
        (WIDE, 64, BLOCKS_DOMINATE, AUTOCAST, "forward", {}),
        (SCORES_DOMINATE, 64, VOCAB_SIZE, AUTOCAST, "forward", {}),
        (SCORES_DOMINATE, 192, BLOCKS_DOMINATE, AUTOCAST, "forward", {}),
        (SCORES_DOMINATE, 192, BLOCKS_DOMINATE, "float32", "forward", {}),
        (SCORES_DOMINATE, 192, BLOCKS_DOMINATE, AUTOCAST, "train_step", {"segment": 2}),
        (
            *(SCORES_DOMINATE, 192, BLOCKS_DOMINATE, "float32", "train_step"),
            {"segment": 3, "nested": True},
        ),
        (MANY_WEIGHTS, 64, VOCAB_SIZE, AUTOCAST, "train_step", {"segment": 1}),
    ],
)
def test_predicted_peak_matches_the_measured_peak(size, context, vocab, dtype, phase, checkpoints):
    cell = size, context, BATCH, dtype, phase
    predicted = predicted_memory(*cell, vocab=vocab, **checkpoints)["peak"]
    measured = measured_peak(size, context, vocab, dtype, phase, checkpoints)
    assert predicted == pytest.approx(measured, rel=0.02)
