"""A model of communication: what a collective takes, and a train step whose gradients are reduced.

Imports no torch. A call of a collective takes an overhead, and its bytes over the rate of the bus:

    seconds = overhead + factor * bytes / rate

`bytes` and `factor` are those of nccl-tests (`bus_factor`): `factor * bytes` is what each rank
sends in a ring, so `rate` is the bus bandwidth of long messages, which can be compared with the
rate of a link. Both are fitted to the times of the benchmark `collectives` (`fit`).

A step (`predicted_step`) is a forward pass, a backward pass and an update. Gradients become ready
during the backward pass in proportion to its FLOPs, the last layer's first. Calls are made in this
order, one after the other, as one NCCL stream runs them; calls that overlap with the backward pass
begin when their gradients are ready, the others when it has ended. The model leaves out that
communication takes SMs and bandwidth from the computation beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lmperf.distributed.memory import strategy_of
from lmperf.transformer.memory import FLOAT32
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

CONFIDENCE = 0.95
# Fewer sizes do not show how well a line fits.
LEAST_SIZES = 3
# Relative error of a time from which on it counts less than by its square.
_OUTLYING = 0.1
# DistributedDataParallel sends a small first bucket, to begin early.
_FIRST_DDP_BUCKET = 2**20
# A fused AdamW reads weight, gradient and two moments, and writes all but the gradient.
_UPDATE_ACCESSES = 7
# Strategies that copy all gradients into flat buffers, of which they are views afterwards.
_COPYING = ("flat", "bucket", "ddp")
# Each candidate for the best bucket is larger than the one before by this factor.
_FINER = 2**0.25
# Predicted steps this near to the best one are as good.
AS_GOOD = 0.005


def bus_factor(operation: str, ranks: int) -> float:
    """Return the bytes that a rank sends in a ring, per byte of a message (nccl-tests).

    Raises:
        ValueError: the operation is unknown.
    """
    factors = {
        "copy": 1.0,
        "all_reduce": 2 * (ranks - 1) / ranks,
        "all_gather": (ranks - 1) / ranks,
        "reduce_scatter": (ranks - 1) / ranks,
    }
    if operation not in factors:
        raise ValueError(f"operation {operation!r} is none of {', '.join(factors)}")
    return factors[operation]


@dataclass(frozen=True)
class Estimate:
    """A fitted number with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """Time of one call of an operation on a number of ranks, by the bytes of its message.

    Attributes:
        overhead: seconds of a call without bytes.
        rate: bus bandwidth in bytes/s.
        factor: `bus_factor` of the operation.
        spread: standard deviation of the relative errors of the fit.
    """

    overhead: Estimate
    rate: Estimate
    factor: float
    spread: float

    def seconds(self, message: float) -> float:
        """Seconds of a call with a message of so many bytes."""
        return self.overhead.value + self.factor * message / self.rate.value


def fit(operation: str, ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Fit overhead and rate to measured times of messages of several sizes.

    The relative errors are minimised, so that short and long messages count alike; large ones count
    less than by their square, since a protocol that changes with the size leaves the line somewhere
    between the ends. The intervals are those of the linearised fit, in the logarithm.

    Raises:
        ValueError: there are fewer than LEAST_SIZES different sizes.
    """
    if len(set(sizes)) < LEAST_SIZES:
        raise ValueError(f"a fit needs messages of {LEAST_SIZES} sizes, not {len(set(sizes))}")
    from scipy.optimize import least_squares

    factor = bus_factor(operation, ranks)
    sent, times = factor * np.asarray(sizes, float), np.asarray(seconds, float)

    def errors(logs: np.ndarray) -> np.ndarray:
        return np.log(np.exp(logs[0]) + sent * np.exp(logs[1])) - np.log(times)

    start = np.log([times.min(), (times / sent).min()])
    found = least_squares(errors, start, loss="soft_l1", f_scale=_OUTLYING)
    free = max(len(times) - 2, 1)
    spread = float(np.sqrt((found.fun**2).sum() / free))
    half = _half_widths(found.jac, spread, free)
    overhead, inverse = (_estimate(log, width) for log, width in zip(found.x, half, strict=True))
    rate = Estimate(1 / inverse.value, 1 / inverse.high, 1 / inverse.low)
    return Line(overhead, rate, factor, spread)


def _half_widths(jacobian: np.ndarray, spread: float, free: int) -> np.ndarray:
    """Half the widths of the confidence intervals of the two logarithms."""
    from scipy.special import stdtrit

    covariance = np.linalg.pinv(jacobian.T @ jacobian) * spread**2
    return stdtrit(free, (1 + CONFIDENCE) / 2) * np.sqrt(np.diag(covariance))


def _estimate(log: float, half: float) -> Estimate:
    return Estimate(*(float(np.exp(log + side)) for side in (0.0, -half, half)))


@dataclass(frozen=True)
class Gradient:
    """The gradient of one parameter tensor, or a bucket of several.

    Attributes:
        message: its bytes, float32.
        ready: fraction of the backward pass that has passed when it is ready.
    """

    message: int
    ready: float


def gradients(size: ModelSize, context: int, batch: int, vocab: int = VOCAB_SIZE) -> list[Gradient]:
    """Return the gradients of `TransformerLM` in the order in which the backward pass makes them.

    A linear layer with p weights takes 4 T p FLOPs for T tokens, attention twice its forward pass.

    batch: sequences of one rank.
    """
    tokens, d, f = batch * context, size.d_model, size.d_ff
    scores = 4 * batch * context * (context + 1) * d

    def linear(weights: int, before: int = 0) -> tuple[int, int]:
        return weights, 4 * tokens * weights + before

    norm = d, 0
    feed_forward = linear(d * f), linear(2 * d * f), norm
    attention = linear(d * d), linear(3 * d * d, scores), norm
    tensors = [linear(vocab * d), norm, *((*feed_forward, *attention) * size.num_layers)]
    passed = [*itertools.accumulate(work for _, work in tensors)]
    found = [
        (weights, done / passed[-1]) for (weights, _), done in zip(tensors, passed, strict=True)
    ]
    return [Gradient(FLOAT32 * weights, ready) for weights, ready in (*found, (vocab * d, 1.0))]


@dataclass(frozen=True)
class Computation:
    """Seconds of the parts of a step without communication, at a rank's part of the batch.

    Attributes:
        copy_gbps: measured rate of a copy on the device in GB/s, reads and writes together; None:
            unknown, and copies of gradients take no time.
    """

    forward: float
    backward: float
    update: float
    copy_gbps: float | None

    @property
    def seconds(self) -> float:
        return self.forward + self.backward + self.update


def computation(step: float, parameters: int, copy_gbps: float | None) -> Computation:
    """Split the seconds of a step: the update is memory-bound, the backward takes two thirds else.

    copy_gbps: as in `Computation`; if it is unknown, the update takes no time of its own.
    """
    moved = _UPDATE_ACCESSES * FLOAT32 * parameters
    update = min(moved / copy_gbps / 1e9, step / 2) if copy_gbps else 0.0
    return Computation((step - update) / 3, 2 * (step - update) / 3, update, copy_gbps)


@dataclass(frozen=True)
class Step:
    """A predicted step in seconds: its communication, the part of it that is exposed, its calls."""

    seconds: float
    communication: float
    exposed: float
    calls: int

    @property
    def hidden(self) -> float:
        """Fraction of the communication that runs while the backward pass computes."""
        return 1 - self.exposed / self.communication


def predicted_step(name: str, made: Sequence[Gradient], computing: Computation, line: Line) -> Step:
    """Predict the step of a strategy that all-reduces gradients.

    name: an implementation of the benchmark `distributed` (tables D2 to D6). line: of all-reduces.

    Raises:
        ValueError: the strategy is unknown, or does more than to all-reduce gradients.
    """
    strategy, kind = strategy_of(name), name.removesuffix("_compiled")
    if strategy.shards != "replicated" or kind == "one_rank":
        raise ValueError(f"{name} does not all-reduce gradients alone")
    calls = _ddp_buckets(made, strategy.bucket) if kind == "ddp" else buckets(made, strategy.bucket)
    if kind in ("one_by_one", "flat"):
        calls = [replace(call, ready=1.0) for call in calls]
    return _step(calls, computing, line, copies=kind.startswith(_COPYING))


def buckets(made: Iterable[Gradient], most: float) -> list[Gradient]:
    """Join gradients, in order, to buckets of at most `most` bytes; a larger gradient is alone.

    A bucket is ready when its last gradient is.
    """
    found: list[Gradient] = []
    for one in made:
        if found and found[-1].message + one.message <= most:
            found[-1] = Gradient(found[-1].message + one.message, one.ready)
        else:
            found.append(one)
    return found


def _ddp_buckets(made: Iterable[Gradient], least: float) -> list[Gradient]:
    """The buckets of DistributedDataParallel, which it fills until they have `least` bytes."""
    found, needed = [Gradient(0, 0.0)], _FIRST_DDP_BUCKET
    for one in made:
        if found[-1].message >= needed:
            needed = least
            found.append(Gradient(0, 0.0))
        found[-1] = Gradient(found[-1].message + one.message, one.ready)
    return found


def _step(calls: Sequence[Gradient], computing: Computation, line: Line, copies: bool) -> Step:
    """The step with these calls; `copies`: whether gradients are copied into buffers first."""
    copied = 2 * copies * sum(call.message for call in calls)
    copying = copied / computing.copy_gbps / 1e9 if computing.copy_gbps else 0.0
    free, communication = 0.0, 0.0
    for call in calls:
        seconds = line.seconds(call.message)
        free = max(free, call.ready * computing.backward) + seconds
        communication += seconds
    exposed = max(0.0, free - computing.backward)
    return Step(computing.seconds + exposed + copying, communication, exposed, len(calls))


@dataclass(frozen=True)
class BestBucket:
    """The bucket with the shortest predicted step, and the range of those that are as good.

    Attributes:
        message, low, high: bytes; between low and high the step is longer by at most AS_GOOD.
        seconds: the predicted step.
    """

    message: float
    low: float
    high: float
    seconds: float


def best_bucket(made: Sequence[Gradient], computing: Computation, line: Line) -> BestBucket:
    """Return the most bytes of a bucket with which the predicted overlapped step is shortest."""
    total = sum(one.message for one in made)
    least = min(1e6, total)
    sizes = least * _FINER ** np.arange(int(np.log(total / least) / np.log(_FINER)) + 2)
    steps = [_step(buckets(made, size), computing, line, copies=True).seconds for size in sizes]
    best = int(np.argmin(steps))
    good = sizes[np.asarray(steps) <= (1 + AS_GOOD) * steps[best]]
    return BestBucket(float(sizes[best]), float(good.min()), float(good.max()), steps[best])


def predicted_all_reduces(
    ranks: int, lines: Mapping[str, Line]
) -> dict[str, Callable[[float], float]]:
    """Return implementation of an all-reduce -> its seconds by bytes, from those of its parts.

    A reduce-scatter with an all-gather sends 2 (R-1)/R of the bytes from each of R ranks, as a ring
    does; whole tensors passed round are R-1 copies, so they send R/2 times as many.

    lines: operation -> line; needs `reduce_scatter` and `all_gather`, and `copy`.
    """
    scatter, gather, copy = (lines[name] for name in ("reduce_scatter", "all_gather", "copy"))
    return {
        "scatter_gather": lambda message: scatter.seconds(message) + gather.seconds(message),
        "pass_round": lambda message: (ranks - 1) * copy.seconds(message),
    }
