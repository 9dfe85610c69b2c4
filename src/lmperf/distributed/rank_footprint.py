"""Memory of a rank in closed form, for each strategy of data parallelism.

Imports no torch.

Symbols: N parameters, all float32 in the copy that the optimizer updates; R ranks; n_u parameters
of a unit of the fully sharded strategies (a block, the embedding or the head); w bytes of a matmul
operand. The optimizer is AdamW, with two float32 moments. What is sharded is as in ZeRO stages 1
and 3 (Rajbhandari et al. 2020, arXiv 1910.02054).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lmperf.transformer.footprint import FLOAT32, Footprint, operand_bytes
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

MOMENTS = ("init", "before_step", "after_step", "peak")
COMPONENTS = ("parameters", "gradients", "optimizer", "other")
# What ZeRO stages 1 and 3 shard over the ranks; the rest is replicated.
_ZERO_1, _ZERO_3 = ("optimizer",), ("optimizer", "gradients", "parameters")
_MB = 10**6
_BFLOAT16 = 2
# Bytes of DistributedDataParallel's default buckets.
_DDP_BUCKET = 25 * 2**20
# Layers whose weights the fully sharded strategy holds at once: the current one and two ahead.
HELD_UNITS = 3
# Units whose float32 gradients wait for their reduce-scatter at once.
REDUCED_UNITS = 2
# Units that FSDP2 holds gathered, and those whose all-gather buffers it holds, at once.
_FSDP2_GATHERED, _FSDP2_BUFFERS = 2, 1


@dataclass(frozen=True)
class Strategy:
    """How a strategy stores weights, gradients and the optimizer's state.

    Attributes:
        sharded: the components that are sharded over the ranks; the rest is replicated.
        bucket: bytes of a bucket of gradients in persistent buffers; 0: there are no buckets, and
            gradients are reduced where autograd puts them.
        norms_sharded: whether norms are sharded with the other parameters.
        gathered: units whose weights are held in whole at the peak; 0: parameters are replicated.
        buffers: units whose all-gather needs a buffer beside the weights at the peak.
        checkpointed: whether each block keeps its input only and is run again.
        has_copies: whether the linear layers of the blocks have bf16 copies of their weights, whose
            gradients are bf16; their float32 weights are sharded like the moments.
    """

    sharded: tuple[str, ...] = ()
    bucket: int = 0
    norms_sharded: bool = False
    gathered: int = 0
    buffers: int = 0
    checkpointed: bool = False
    has_copies: bool = False


_OURS = Strategy(_ZERO_3, gathered=HELD_UNITS)
_FSDP2 = Strategy(_ZERO_3, norms_sharded=True, gathered=_FSDP2_GATHERED, buffers=_FSDP2_BUFFERS)
# Name of an implementation of the benchmark `distributed` -> its strategy.
STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        "one_rank": Strategy(),
        "one_by_one": Strategy(),
        "flat": Strategy(bucket=2**62),
        "overlapped": Strategy(),
        **{f"bucket_{mb}": Strategy(bucket=mb * _MB) for mb in (1, 10, 100, 1000)},
        "one_rank_graph": Strategy(has_copies=True),
        "overlapped_graph": Strategy(has_copies=True),
        "sharded_optimizer_graph": Strategy(_ZERO_1, has_copies=True),
        "ddp": Strategy(bucket=_DDP_BUCKET),
        "ddp_bf16": Strategy(bucket=_DDP_BUCKET),
        "sharded_optimizer": Strategy(_ZERO_1),
        "zero_redundancy": Strategy(_ZERO_1, bucket=_DDP_BUCKET),
        "fully_sharded": _OURS,
        "fsdp2": _FSDP2,
        "fsdp2_kept": _FSDP2,
        "fully_sharded_checkpointed": replace(_OURS, checkpointed=True),
        "fsdp2_checkpointed": replace(_FSDP2, checkpointed=True),
    }
)


def strategy_of(name: str) -> Strategy:
    """Return the strategy of an implementation; a compiled variant has that of the eager one.

    Raises:
        ValueError: no strategy has this name.
    """
    plain = name.removesuffix("_compiled")
    if plain not in STRATEGIES:
        raise ValueError(f"unknown strategy {name!r}; known: {', '.join(STRATEGIES)}")
    return STRATEGIES[plain]


def state_bytes(name: str, size: ModelSize, ranks: int) -> dict[str, int]:
    """Bytes per rank of "parameters", "gradients" and "optimizer" of a model under a strategy.

    Between steps, without what is gathered for use. Padding of shards is left out: less than 1 kB.
    """
    strategy = strategy_of(name)
    parameters = size.parameters(VOCAB_SIZE)
    replicated = 0
    if strategy.gathered and not strategy.norms_sharded:
        replicated = (2 * size.num_layers + 1) * size.d_model  # norms
    shard = replicated + -(-(parameters - replicated) // ranks)
    held = {part: shard if part in strategy.sharded else parameters for part in COMPONENTS[:3]}
    state = {part: FLOAT32 * (1 + (part == "optimizer")) * held[part] for part in held}
    if strategy.has_copies:
        copied = size.num_layers * size.linear_parameters
        state["gradients"] -= (FLOAT32 - _BFLOAT16) * copied
        state["parameters"] += _BFLOAT16 * copied
        if "optimizer" in strategy.sharded:
            state["parameters"] -= FLOAT32 * (copied - copied // ranks)
    return state


def predicted_bytes(
    name: str,
    size: ModelSize,
    context: int,
    batch: int,
    ranks: int,
    dtype: str,
    device: str = "cuda",
) -> dict[str, dict[str, int]]:
    """Bytes per rank by moment (`MOMENTS`) and component (`COMPONENTS`), with their sum as "total".

    `init`: the model and its strategy exist, no step was made. `before_step` and `after_step`:
    right before and after the first update of the weights. `peak`: the peak of a later step.

    Attention is `scaled_dot_product_attention`, which stores no scores.

    batch: sequences of all ranks together. dtype: a value of the dtype axis with float32 weights.

    Raises:
        ValueError: the strategy or the dtype is unknown, or the batch does not split.
    """
    if batch % ranks:
        raise ValueError(f"a batch of {batch} does not split over {ranks} ranks")
    strategy, state = strategy_of(name), state_bytes(name, size, ranks)
    local = _LocalStep(
        size=size,
        context=context,
        batch=batch // ranks,
        w=operand_bytes(dtype),
        device=device,
        vocab=VOCAB_SIZE,
        segment=1 if strategy.checkpointed else 0,
        strategy=strategy,
        ranks=ranks,
    )
    kept = 16 * local.batch * context + FLOAT32 * context * size.d_head
    buckets = state["gradients"] if strategy.bucket else 0
    quiet = {"parameters": state["parameters"], "gradients": 0, "optimizer": 0, "other": kept}
    moments = {
        "init": quiet | {"gradients": buckets},
        "before_step": quiet | {"gradients": state["gradients"]},
        "after_step": quiet | {k: state[k] for k in ("gradients", "optimizer")},
        "peak": local.peak(state),
    }
    return {moment: {**parts, "total": sum(parts.values())} for moment, parts in moments.items()}


@dataclass(frozen=True)
class _LocalStep(Footprint):
    """The step of a rank on its part of the batch: `Footprint` with a strategy's own buffers."""

    strategy: Strategy = STRATEGIES["one_rank"]
    ranks: int = 1

    def attention_saved(self) -> int:
        """Bytes saved by SDPA: norm, q, k, the projection that v is a view of, the output, and the
        logsumexp of each row."""
        rows = self.batch * self.size.num_heads * self.context
        return self.norm_saved() + 6 * self.w * self.stream + FLOAT32 * rows

    def _attention_backward(self, index: int) -> dict[str, int]:
        """Bytes in the backward of SDPA: gradients of its output, of q, k and v, and of the stream,
        and, on CUDA, the float32 sum of the gradient of q."""
        d, f = self.size.d_model, self.size.d_ff
        inside = FLOAT32 * self.stream if self.device == "cuda" else 0
        return self._training_moment(
            gradients=self._gradients_after(index) + FLOAT32 * (3 * d * f + d + d * d),
            activations=self._saved_before(index) + self.attention_saved(),
            temporary=(FLOAT32 + 4 * self.w) * self.stream + inside,
            weight_copies=self.weight_copies(self._copied_before(index), 3 * d * d),
        )

    def peak(self, state: Mapping[str, int]) -> dict[str, int]:
        """Bytes by component at the moment of the step with the largest sum."""
        moments = [self._under(moment, state) for moment in self.training().values()]
        return max(moments, key=lambda parts: sum(parts.values()))

    def _under(self, moment: Mapping[str, int], state: Mapping[str, int]) -> dict[str, int]:
        """A moment of the plain step, with what the strategy stores instead."""
        other = sum(moment[part] for part in ("activations", "temporary", "inputs", "workspace"))
        gradients, copies, buffers = moment["gradients"], moment["weight_copies"], 0
        if "gradients" in self.strategy.sharded:
            gradients = -(-gradients // self.ranks)
        if self.strategy.gathered:
            copies, buffers = 0, self._unit_buffers(backward=moment["gradients"] > 0)
        elif self.strategy.bucket:
            # Gradients are copied into the persistent buckets, one bucket at a time.
            in_flight = min(self.strategy.bucket, gradients)
            gradients, buffers = state["gradients"], in_flight
        return {
            "parameters": state["parameters"],
            "gradients": gradients,
            "optimizer": state["optimizer"],
            "other": other + copies + buffers,
        }

    def _unit_buffers(self, backward: bool) -> int:
        """Bytes of gathered weights, all-gather buffers and gradients of units in flight."""
        unit = self.size.linear_parameters
        gathered = self.w * unit * (self.strategy.gathered + self.strategy.buffers)
        if not backward:
            return gathered
        return gathered + unit * (self.w + REDUCED_UNITS * FLOAT32)
