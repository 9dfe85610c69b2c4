"""A model with weights and tokens: its timed phases and the checks of its results."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from lmperf.benchmark import STRICT, Phase, WrongResult
from lmperf.gate import Gate
from lmperf.outputs import plain
from lmperf.precision import precision
from lmperf.transformer import float8, model_accuracy
from lmperf.transformer.counted_flops import forward_flops
from lmperf.transformer.flops import FLOPS_PER_FORWARD, flops
from lmperf.transformer.guards import digest
from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.reference import eager, float64_reference
from lmperf.transformer.sizes import SIZES, VOCAB_SIZE, ModelSize
from lmperf.transformer.training import WithLoss, adamw, autocast, draw, loss_of, train_step

Model = Callable[[Tensor], Tensor]
# (model, optimizer, tokens, targets) -> loss. Clears the gradients first and keeps the new ones.
Step = Callable[[Model, torch.optim.Optimizer, Tensor, Tensor], Tensor]

# How many gradients are checked after a timed call; the gate before the timing checks all.
_GRADIENTS_CHECKED = 2
# AdamW's moments, and their largest relative error from rounding to bfloat16.
_MOMENTS = ("exp_avg", "exp_avg_sq")
_MOMENT_OFF = 0.01


class ModelProblem:
    """A TransformerLM of a named size, with random weights and a batch of random tokens.

    Implementations and dtypes of a cell with the same `prepare` share it. The learning rate is
    zero: a step does all of its arithmetic, and the weights stay those of the gate's reference.
    `model` is the eager model that implementations are checked against; an implementation receives
    a twin of it.

    Args:
        size: key of `lmperf.transformer.sizes.SIZES`.
        context: tokens of a sequence.
        batch: sequences.
        device: where weights and tokens are.
        seed: of weights, tokens and targets.
        build: (size, context) -> the model; None: a TransformerLM.
        vocabulary: tokens that a TransformerLM knows; None: `VOCAB_SIZE`.
        prepare: (model, learning rate) -> optimizer; may change the model in place. With a method
            `check` (`lmperf.own.optimizer.OwnOptimizer`), the optimizer is the user's: its state is
            not known, and the gate compares its weights after some steps instead.
    """

    def __init__(
        self,
        size: str,
        context: int,
        batch: int,
        device: str,
        seed: int,
        build: Callable[[ModelSize, int], nn.Module] | None = None,
        prepare: Callable[[Any, float], torch.optim.Optimizer] = adamw,
        vocabulary: int | None = None,
    ):
        self._size, self._context, self._batch = SIZES[size], context, batch
        self._vocabulary = vocabulary or VOCAB_SIZE
        self._gate_seed = self._seed = seed
        torch.manual_seed(seed)
        with torch.device(device):
            if build:
                self.model = build(self._size, context).to(device)
            else:
                self.model = TransformerLM.of_size(self._size, self._vocabulary, context)
            self.tokens = torch.empty(batch, context, dtype=torch.int64)
        self.targets = torch.empty_like(self.tokens)
        self.freshen(seed)
        self.optimizer = prepare(self.model, 0.0)
        self._steps = self._seen = 0
        self._check_own = getattr(prepare, "check", None)
        if self._check_own:
            self.optimizer.register_step_post_hook(self._see)
        self._pytorch: dict[tuple[str, str], tuple[dict[str, float], dict[str, float]]] = {}
        self._weights = digest(self.model)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def resident(self) -> list[Any]:
        """Objects that live as long as the problem: model, optimizer, tokens and targets."""
        return [self.model, self.optimizer, self.tokens, self.targets]

    def freshen(self, seed: int) -> None:
        """Overwrite tokens and targets, in place, by random ones of another seed."""
        self._seed = seed
        draw(seed, self.tokens, self.targets, vocab=self._vocabulary)

    def inference(self, dtype: str, model: Model | None = None) -> Tensor:
        """The logits of a forward pass without autograd."""
        run = self.model if model is None else model
        with torch.no_grad(), autocast(dtype, self.tokens.device):
            return run(self.tokens)

    def train_step(self, dtype: str, model: Model | None = None) -> Tensor:
        """Clear gradients, forward, backward, AdamW; returns the loss."""
        return self._counted(self._step_of(self.model if model is None else model, dtype))

    def _step_of(self, model: Model, dtype: str) -> Callable[..., Tensor]:
        """The train step of a model, without its count; it can be given a `Mark` as `mark`."""
        return partial(train_step, model, self.optimizer, self.tokens, self.targets, dtype)

    def phases(self, model: Model, dtype: str) -> dict[str, Phase]:
        """The timed phases of a model; only the train step clears gradients while being timed.

        Each returns the loss, a scalar, except backward, which returns None and leaves the
        gradients on the parameters.
        """

        def forward(_: object = None) -> Tensor:
            with autocast(dtype, self.tokens.device):
                return loss_of(model, self.tokens, self.targets)

        def cleared_forward() -> Tensor:
            self._clear()
            return forward()

        def forward_backward(_: object) -> Tensor:
            loss = forward()
            loss.backward()
            return loss.detach()

        def phase(name: str, run: Callable[[Any], Any], before: Callable[[], Any]) -> Phase:
            return Phase(run, before, **self._work(name))

        return {
            "forward": phase("forward", forward, self._clear),
            "backward": phase("backward", lambda loss: loss.backward(), cleared_forward),
            "forward_backward": phase("forward_backward", forward_backward, self._clear),
            "train_step": self.step_phase(self._step_of(model, dtype), has_parts=True),
        }

    def step_phase(self, run: Callable[..., Any], has_parts: bool = False) -> Phase:
        """The timed phase of a training step, called without arguments, which returns the loss.

        has_parts: whether it can be given a `Mark` as `mark`.
        """
        parts = (lambda mark: self._counted(partial(run, mark=mark))) if has_parts else None
        return Phase(lambda _: self._counted(run), parts=parts, **self._work("train_step"))

    def custom_step(self, step: Step, model: Model, dtype: str) -> Any:
        """Make a custom train step of a model; returns what the step returns, detached."""
        with autocast(dtype, self.tokens.device):
            loss = step(model, self.optimizer, self.tokens, self.targets)
        return loss.detach() if isinstance(loss, Tensor) else loss

    def _counted(self, run: Callable[[], Any]) -> Any:
        loss = run()
        self._steps += 1
        return loss

    def _work(self, phase: str) -> dict[str, int]:
        """The FLOPs of a phase; also with all scores if the model is ours."""
        if not isinstance(self.model, TransformerLM):
            return {"flops": self._counted_flops * FLOPS_PER_FORWARD[phase]}
        cell = self._size, self._context, self._batch, phase, self._vocabulary
        return {"flops": flops(*cell), "full_flops": flops(*cell, full=True)}

    @cached_property
    def _counted_flops(self) -> int:
        return forward_flops(self.model, self.tokens)

    def _clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _outputs(self, model: Model, dtype: str) -> tuple[Tensor, Tensor]:
        """Logits and loss of a model; a `WithLoss` is called once for each."""
        with autocast(dtype, self.tokens.device):
            logits = model(self.tokens)
            shape = *self.tokens.shape, self._vocabulary
            plain("the logits", logits, shape, self.tokens.device, None)
            if isinstance(model, WithLoss):
                # Its activations would take memory beside those of the loss.
                logits = logits.detach()
                return logits, loss_of(model, self.tokens, self.targets)
            return logits.detach(), cross_entropy(logits, self.targets)

    def expect(self, dtype: str, tolerance: str = STRICT) -> dict[str, Tensor]:
        """The float64 reference; also computes the bounds of a gate.

        Moments and CUDA graphs do not leave the memory for it on every device.
        """
        self._limits(dtype, tolerance)
        return self._reference

    def gate(self, model: Model, dtype: str, phases: Sequence[str]) -> Gate:
        """Compare logits, loss and the gradient of every parameter with float64.

        Bounds: see `model_accuracy`. Weights are the same; tokens are those of the
        problem's seed, and the current ones are restored afterwards.

        Raises:
            WrongResult: logits or a gradient have the wrong type, shape, dtype or device.
        """
        with self._gate_tokens():
            # The eager model runs first, so that its memory is free before the model runs.
            self._clear()
            pytorch, allowed = self._limits(dtype)
            with precision(dtype):
                logits, loss = self._outputs(model, dtype)
                got = {"logits": logits, "loss": self._plain_loss(loss)}
                del logits
                if set(phases) - {"forward"}:
                    loss.backward()
                    got |= {name: self._gradient(name) for name in self._names}
            del loss
            gate = model_accuracy.gate_of(got, self._reference, allowed, pytorch)
            self._clear()
        return gate

    def gate_run(self, run: Callable[[], Any], dtype: str, tolerance: str = STRICT) -> Gate:
        """Compare the loss of a train step, and the gradients that it leaves, with float64.

        run: makes the step and returns the loss. tolerance: key of `float8.RECIPES` if the step
        rounds operands of its matmuls to float8; PyTorch's error is then that of an eager model
        that does the same. Otherwise as `gate`.

        Raises:
            WrongResult: as `gate`; or the optimizer made no step or did not update its moments.
        """
        with self._gate_tokens():
            self._clear()
            pytorch, allowed = self._limits(dtype, tolerance)
            before = self._moments()
            with precision(dtype):
                got = {"loss": self._plain_loss(self._counted(run))}
            got |= {name: self._gradient(name) for name in self._names}
            self._require_steps(self._names)
            self._require_moments(before)
            coarse = tolerance != STRICT
            gate = model_accuracy.gate_of(got, self._reference, allowed, pytorch, coarse)
            self._clear()
        if self._check_own is None:
            return gate
        error, bound, name = self._check_own(self.model, self._gate_seed)
        return replace(
            gate,
            errors={**gate.errors, "update": error},
            bounds={**gate.bounds, "update": bound},
            where={**gate.where, "update": name},
        )

    def check(self, dtype: str, phase: str, result: Any, tolerance: str = STRICT) -> Gate:
        """Compare the results of a timed call with the eager model on the current tokens.

        result: what `phases(...)[phase].run` returned, or a copy. Compared are the loss and, after
        a phase with a backward pass, the gradients of some parameters, chosen by the seed of the
        tokens. The gate has compared both sides with float64, so they may differ by the sum of the
        bound and PyTorch's error. The loss is a weak check: in bf16, up to one in four losses of
        other tokens pass (3.4B). The gradients are the strong check; a forward call that cheats
        would have to know that no backward pass follows.

        Gradients that existed before exist afterwards; they are zero.

        Raises:
            WrongResult: the result or a gradient has the wrong type, shape, dtype or device; tokens
                or weights have changed; or the optimizer made no step.
        """
        self._require_inputs()
        got, names = {}, ()
        if phase != "backward":
            got["loss"] = self._plain_loss(result)
        elif result is not None:
            raise WrongResult("the backward pass returned a value instead of None")
        if phase != "forward":
            names = random.Random(self._seed).sample(self._names, _GRADIENTS_CHECKED)
            got |= {name: self._gradient(name).clone() for name in names}
        if phase == "train_step":
            self._require_steps(names)
        self._clear()  # The eager model needs their memory.
        expected = eager(self._exact(tolerance), self.tokens, self.targets, dtype, names)
        if phase != "forward":
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
        pytorch, allowed = self._limits(dtype, tolerance)
        limits = {name: allowed[name] + pytorch[name] for name in pytorch}
        return model_accuracy.gate_of(got, expected, limits, pytorch, tolerance != STRICT)

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.model.named_parameters()]

    @contextmanager
    def _gate_tokens(self) -> Iterator[None]:
        seed = self._seed
        self.freshen(self._gate_seed)
        try:
            yield
        finally:
            self.freshen(seed)

    @cached_property
    def _reference(self) -> dict[str, Tensor]:
        with self._gate_tokens():
            return float64_reference(self.model, self.tokens, self.targets)

    def _exact(self, tolerance: str) -> Any:
        """The eager model that rounds as a tolerance allows."""
        return self.model if tolerance == STRICT else float8.with_float8(self.model, tolerance)

    def _limits(
        self, dtype: str, tolerance: str = STRICT
    ) -> tuple[dict[str, float], dict[str, float]]:
        """For each tensor, PyTorch's error in this dtype and the error bound.

        Cached, so that `check` needs no float64 reference.
        """
        if (dtype, tolerance) not in self._pytorch:
            reference, exact = self._reference, self._exact(tolerance)
            with self._gate_tokens():
                got = eager(exact, self.tokens, self.targets, dtype, self._names)
            coarse = tolerance != STRICT
            pytorch = model_accuracy.pytorch_errors(got, reference, coarse)
            if coarse:
                allowed = model_accuracy.coarse_bounds(pytorch)
            else:
                layers = self._size.num_layers
                allowed = model_accuracy.bounds(pytorch, dtype, self.model, layers, reference)
            self._pytorch[dtype, tolerance] = pytorch, allowed
        return self._pytorch[dtype, tolerance]

    def forget_reference(self) -> None:
        """Free the float64 reference; the next gate computes it again."""
        self.__dict__.pop("_reference", None)

    def _gradient(self, name: str) -> Tensor:
        parameter = self.model.get_parameter(name)
        if parameter.grad is None:
            raise WrongResult(f"{name} has no gradient")
        words, device = f"the gradient of {name}", self.tokens.device
        return plain(words, parameter.grad, parameter.shape, device, parameter.grad_dtype)

    def _plain_loss(self, loss: Any) -> Tensor:
        return plain("the loss", loss, (), self.tokens.device, torch.float32)

    def _require_inputs(self) -> None:
        drawn = torch.empty_like(self.tokens), torch.empty_like(self.targets)
        draw(self._seed, *drawn, vocab=self._vocabulary)
        if not all(map(torch.equal, (self.tokens, self.targets), drawn)):
            raise WrongResult("the call changed its tokens or targets")
        if not torch.equal(digest(self.model), self._weights):
            raise WrongResult("the call changed weights or buffers")

    def _see(self, *_: Any) -> None:
        self._seen += 1

    def _require_steps(self, names: Collection[str]) -> None:
        for name in names:
            state = self.optimizer.state[self.model.get_parameter(name)]
            steps = self._seen if self._check_own else state.get("step")
            if steps is None or int(steps) != self._steps:
                words = f"the optimizer did not step exactly once per call for {name}"
                raise WrongResult(f"{words}; a train step must use the optimizer that it is given")

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        """Copies of the moments of some parameters, by name; empty before the first step."""
        if self._check_own:
            return {}
        names = random.Random(self._seed).sample(self._names, _GRADIENTS_CHECKED)
        states = {name: self.optimizer.state.get(self.model.get_parameter(name)) for name in names}
        return {
            name: {moment: state[moment].float().clone() for moment in _MOMENTS}
            for name, state in states.items()
            if state
        }

    def _clipped_to(self) -> float:
        """What an optimizer that clips multiplies its gradients by; 1 for others."""
        max_norm = getattr(self.optimizer, "max_norm", None)
        if max_norm is None:
            return 1.0
        squares = [p.grad.double().square().sum() for p in self.model.parameters()]
        return min(1.0, max_norm / float(torch.stack(squares).sum().sqrt()))

    def _require_moments(self, before: dict[str, dict[str, Tensor]]) -> None:
        """Raise WrongResult unless AdamW updated both moments m: m += (1 - beta) (gradient^k - m).

        k is 1 for `exp_avg` and 2 for `exp_avg_sq`. The learning rate is zero, so that the weights
        do not show whether the optimizer worked.
        """
        betas, scale = self.optimizer.param_groups[0]["betas"], self._clipped_to()
        for name, old in before.items():
            parameter = self.model.get_parameter(name)
            for power, (moment, beta) in enumerate(zip(_MOMENTS, betas, strict=True), 1):
                change = (1 - beta) * ((scale * parameter.grad.float()) ** power - old[moment])
                updated = self.optimizer.state[parameter][moment].float()
                off = (updated - old[moment] - change).norm()
                if not off <= _MOMENT_OFF * (old[moment] + change).norm():
                    raise WrongResult(f"the optimizer did not update {moment} of {name}")
