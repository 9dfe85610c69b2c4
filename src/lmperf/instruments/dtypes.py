"""Errors of sums in reduced precision (table M1) and dtypes that autocast chooses (table M2)."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmperf.transformer.model import Block, RotaryEmbedding
from lmperf.transformer.sizes import ROPE_THETA

SUBJECTS = ("toy", "transformer_block")


class ToyModel(nn.Module):
    """fc1 -> relu -> layer norm -> fc2, which shows how autocast treats these (table M2).

    [batch, in_features] -> [batch, out_features] logits.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_features, 10, bias=False)
        self.relu = nn.ReLU()
        self.ln = nn.LayerNorm(10)
        self.fc2 = nn.Linear(10, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.ln(self.relu(self.fc1(x))))


def accumulate(
    accumulator_dtype: torch.dtype,
    addend_dtype: torch.dtype,
    upcast: bool = False,
    additions: int = 1000,
    addend: float = 0.01,
) -> float:
    """Sum `additions` times `addend` sequentially in accumulator_dtype, starting at zero.

    The addend is rounded to addend_dtype first. If that is narrower than the accumulator, the
    addition converts it implicitly; upcast converts it explicitly, with the same result.
    """
    total = torch.zeros((), dtype=accumulator_dtype)
    step = torch.tensor(addend, dtype=addend_dtype)
    for _ in range(additions):
        total += step.to(accumulator_dtype) if upcast else step
    return total.item()


class ObservedDtype(NamedTuple):
    """A tensor seen in a forward and backward pass: its name, kind and dtype ("float32", ...).

    kind: parameter, output (of a module), logits (of the whole model), loss or gradient.
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
    """Run a forward pass under autocast and a backward pass; returns the dtype of every tensor.

    In this order: parameters, the output of every module, the output of the whole model (`whole`:
    its name and kind), the loss, and the gradient of every parameter. Model and inputs are moved to
    the device; hooks are removed and gradients cleared afterwards.

    compiled: the hooks of inner modules run on fake tensors while torch.compile traces, so they
    report the dtypes of the traced program. Inductor may keep such an output in float32 registers
    and never store it. The output of the whole model, the loss and the gradients are real tensors.
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
    """Disable the AOTAutograd cache, which may return a graph made for another autocast dtype.

    Before PyTorch 2.13 the cache key contains whether autocast is on but not its dtype
    (pytorch/pytorch#181564): a graph compiled for float16, even by another process, runs under
    bfloat16 and returns float16.
    """
    if not compiled:
        return nullcontext()
    from torch._functorch import config

    return config.patch(enable_autograd_cache=False)


@contextmanager
def _recorded_outputs(model: nn.Module) -> Iterator[list[tuple[str, str]]]:
    """Collect (name, dtype) of the output of each inner module, in the order of the calls."""
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
    # Dynamo replays the append of a constant to an outer list as a side effect of the traced call.
    def record(module: nn.Module, arguments: tuple, output: Tensor) -> None:
        outputs.append((name, str(output.dtype).removeprefix("torch.")))

    return record


def _number_calls(outputs: list[tuple[str, str]]) -> list[ObservedDtype]:
    """Number repeated calls of a module: the output for q is "rotary", for k "rotary[1]"."""
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

    Inputs are normal random float32 tensors. Toy: [8, 20] -> 5 classes, cross entropy. Block:
    [2, 16, 64], with the mean square of the output as its loss.

    Raises:
        ValueError: the subject is unknown.
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
