"""Reduced precision: sums that drift (table M1) and the dtypes that autocast picks (table M2)."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmperf.instruments.toy import ToyModel
from lmperf.transformer.model import Block, RotaryEmbedding
from lmperf.transformer.sizes import ROPE_THETA

SUBJECTS = ("toy", "transformer_block")


def accumulate(
    accumulator_dtype: torch.dtype,
    addend_dtype: torch.dtype,
    upcast: bool = False,
    additions: int = 1000,
    addend: float = 0.01,
) -> float:
    """Add `addend` to a zero of accumulator_dtype, one addition after the other.

    The accumulator keeps its dtype. An addend of a narrower dtype is rounded to that dtype first;
    the addition then widens it by itself, or explicitly before it with upcast, to the same effect.
    """
    total = torch.zeros((), dtype=accumulator_dtype)
    step = torch.tensor(addend, dtype=addend_dtype)
    for _ in range(additions):
        total += step.to(accumulator_dtype) if upcast else step
    return total.item()


class ObservedDtype(NamedTuple):
    """A tensor of a forward and backward: its name, its kind and its dtype ("float32", ...).

    kind: parameter, output (of a module), logits (of the whole model), loss, gradient.
    """

    tensor: str
    kind: str
    dtype: str


def observed_dtypes(
    model: nn.Module,
    inputs: Tensor,
    loss_of: Callable[[Tensor], Tensor],
    autocast_dtype: torch.dtype,
    compiled: bool = False,
    device: torch.device | str = "cpu",
    whole: tuple[str, str] = ("logits", "logits"),
) -> list[ObservedDtype]:
    """Run model(inputs) and loss_of(output) under autocast, then backward; look at every tensor.

    Parameters, the output of every module, the output of the whole model (name and kind: `whole`),
    the loss and the gradient of every parameter, in this order. Model and inputs are moved to
    device; hooks are removed and gradients cleared afterwards.

    compiled: hooks of the inner modules run while torch.compile traces, on fake tensors. What they
    see are the dtypes of the traced program. Inductor fuses, and may keep such a value in float32
    registers and never store it, so an output's dtype is its declared one; the whole output, the
    loss and the gradients are real tensors.
    """
    device = torch.device(device)
    model, inputs = model.to(device), inputs.to(device)
    model.zero_grad(set_to_none=True)
    run = torch.compile(model, fullgraph=True) if compiled else model
    with _recorded_outputs(model) as outputs, _compiled_anew(compiled):
        with torch.autocast(device.type, dtype=autocast_dtype):
            result = run(inputs)
            loss = loss_of(result)
        loss.backward()
    named = list(model.named_parameters())
    observed = [
        *(ObservedDtype(name, "parameter", _name(parameter.dtype)) for name, parameter in named),
        *_number_calls(outputs),
        ObservedDtype(*whole, _name(result.dtype)),
        ObservedDtype("loss", "loss", _name(loss.dtype)),
        *(ObservedDtype(f"{name}.grad", "gradient", _name(p.grad.dtype)) for name, p in named),
    ]
    model.zero_grad(set_to_none=True)
    return observed


def _compiled_anew(compiled: bool) -> AbstractContextManager:
    """Without the graphs of earlier compilations, which may be those of another autocast dtype.

    Before PyTorch 2.13 the key of its cache of differentiated graphs said whether autocast is on,
    not its dtype (pytorch/pytorch#181564): a graph compiled for float16, even by another process,
    then runs under bfloat16, and its results are float16.
    """
    if not compiled:
        return nullcontext()
    from torch._functorch import config

    return config.patch(enable_autograd_cache=False)


@contextmanager
def _recorded_outputs(model: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """Collects (name, dtype) of what each inner module returns, in the order of the calls."""
    outputs: list[tuple[str, str]] = []
    hooks = [
        module.register_forward_hook(_recorder(name, outputs))
        for name, module in model.named_modules()
        if name
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _recorder(name: str, outputs: list[tuple[str, str]]) -> Callable:
    # Dynamo replays appends of constants to a list of ours as a side effect of the traced call.
    def record(module: nn.Module, arguments: tuple, output: Tensor) -> None:
        outputs.append((name, str(output.dtype).removeprefix("torch.")))

    return record


def _number_calls(outputs: list[tuple[str, str]]) -> list[ObservedDtype]:
    """A module that is called again (RoPE, for q and for k) gets its second name, "rotary[1]"."""
    calls: Counter[str] = Counter()
    observed = []
    for name, dtype in outputs:
        suffix = f"[{calls[name]}]" if calls[name] else ""
        observed.append(ObservedDtype(name + suffix, "output", dtype))
        calls[name] += 1
    return observed


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def introspect(
    subject: str,
    autocast_dtype: torch.dtype,
    compiled: bool = False,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> list[ObservedDtype]:
    """`observed_dtypes` of the toy model ("toy") or of one Transformer block ("transformer_block").

    Normal random float32 inputs from seed. Toy: [8, 20] -> 5 classes, cross-entropy; block:
    [2, 16, 64], whose loss is the mean square of its output. Raises ValueError for another subject.
    """
    if subject not in SUBJECTS:
        raise ValueError(f"subject {subject!r} is none of {', '.join(SUBJECTS)}")
    generator = torch.Generator().manual_seed(seed)
    if subject == "toy":
        inputs = torch.randn(8, 20, generator=generator)
        targets = torch.randint(0, 5, (8,), generator=generator).to(device)
        return observed_dtypes(
            ToyModel(20, 5),
            inputs,
            lambda logits: nn.functional.cross_entropy(logits, targets),
            autocast_dtype,
            compiled,
            device,
        )
    block = Block(64, 4, 256, RotaryEmbedding(16, 16, ROPE_THETA))
    inputs = torch.randn(2, 16, 64, generator=generator)
    return observed_dtypes(
        block,
        inputs,
        lambda output: output.square().mean(),
        autocast_dtype,
        compiled,
        device,
        whole=("block", "output"),
    )
