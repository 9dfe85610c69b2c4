"""Custom implementations: a model class, a train step, or a function that runs a given model.

A model class has the constructor of the courses' model (see `build`). Optimizer classes:
`lmperf.own.optimizer`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from lmperf.benchmark import Benchmark, Implementation, Unsupported
from lmperf.own.imported import imported
from lmperf.own.kinds import MODEL
from lmperf.own.signatures import MODEL_ALIASES, MODEL_ARGUMENTS, bound, fault_of, is_model, is_step
from lmperf.transformer.implementations import compile_static
from lmperf.transformer.model import blocks_of, cross_entropy, twin_of
from lmperf.transformer.sizes import ROPE_THETA, VOCAB_SIZE, ModelSize
from lmperf.transformer.training import WithLoss

Build = Callable[[ModelSize, int], nn.Module]  # (size, context length) -> model


def trained_by(implementation: Implementation) -> tuple[str, Build | None]:
    """The name of the model that a user's strategy or optimizer trains, and what builds it.

    The latter is None for the project's model: see `Implementation.models`.

    Raises:
        Unsupported: what the configuration names is no model class, or cannot be built.
    """
    for name, entry, options in implementation.models:
        found = bound(imported(entry), options) if entry else None
        if is_model(found) and (fault := fault_of(found, MODEL.name)):
            raise Unsupported(f"model: {name}: {fault}")
        if found is None or is_model(found):
            return name, builder(found)
    if implementation.models:
        raise Unsupported(f"model: {implementation.models[0][0]} is not a model class")
    return "", None


def builder(implementation: Any) -> Build | None:
    """What builds the model of an implementation that is a model class; None: it has none."""
    return partial(build, implementation) if is_model(implementation) else None


def class_of(benchmark: Benchmark, name: str) -> type[nn.Module] | None:
    """The model class of a peer or custom implementation; None for the project's model.

    Raises:
        Unsupported: it is a function.
    """
    if benchmark.implementation(name).origin == "project":
        return None
    given = benchmark.callable_of(name)
    if not is_model(given):
        words = "takes a model class, and not a way to run the project's"
        raise Unsupported(f"{benchmark.stem} {words}")
    return given


def build(model_class: type[nn.Module], size: ModelSize, context_length: int) -> nn.Module:
    """Build a model of the given class and size, on the default device (see `torch.device`).

    Of vocab_size, context_length, d_model, num_layers, num_heads, d_ff and rope_theta, the
    constructor receives the arguments that it takes, also by the names of `MODEL_ALIASES`.
    """
    widths = size.d_model, size.num_layers, size.num_heads, size.d_ff
    values = VOCAB_SIZE, context_length, *widths, ROPE_THETA
    known = dict(zip(MODEL_ARGUMENTS, values, strict=True))
    parameters = inspect.signature(model_class).parameters.values()
    by_name = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return model_class(**known)
    known |= {alias: known[name] for alias, name in MODEL_ALIASES.items()}
    return model_class(**{name: value for name, value in known.items() if name in by_name})


def runnable(
    implementation: Any, model: nn.Module, compiled: bool = False
) -> Callable[[Tensor], Tensor]:
    """A callable from tokens to logits: the custom model, or what a custom function returns.

    A custom function takes a twin of `model`. The callable shares parameters and buffers with
    `model`, whose modules do not change.

    compiled: whether to compile a custom model, by block if `blocks_of` finds blocks.

    Raises:
        Unsupported: `implementation` is a train step, or is to be compiled and is no model class.
    """
    if compiled:
        if not is_model(implementation):
            raise Unsupported("compiled: only a model class is compiled")
        return _compiled(twin_of(model))
    if is_step(implementation):
        raise Unsupported("a train step is timed in the benchmark end_to_end only")
    return twin_of(model) if is_model(implementation) else implementation(twin_of(model))


def compiled_words(model: nn.Module) -> str:
    """How `runnable` compiles a custom model."""
    return "by block" if blocks_of(model) else "as a whole"


def _compiled(model: nn.Module) -> WithLoss:
    """Compile the model in place as the project's: each block or else the whole, and the loss.

    A graph break is an error: a model that runs half in eager mode is not a compiled one.
    """
    blocks = blocks_of(model)
    for index, block in enumerate(blocks or ()):
        blocks[index] = compile_static(block)
    run = compile_static(model) if blocks is None else model
    return WithLoss(run, criterion=compile_static(cross_entropy))
