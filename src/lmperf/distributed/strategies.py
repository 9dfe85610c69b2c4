"""The strategies of the benchmark `distributed`: ours and those of torch.

Those of users: `lmperf.own.strategy`.

Each function takes a `Setup` and returns a `Training`, whose steps every rank makes on its part of
the batch. `blocks` says how the blocks of the model run: `eager`, or a key of `BLOCKS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from lmperf.benchmark import Unsupported
from lmperf.distributed.data_parallel import DataParallel
from lmperf.distributed.fully_sharded import FullySharded
from lmperf.distributed.ranked_adamw import ranked_adamw
from lmperf.distributed.sharded_optimizer import ShardedOptimizer
from lmperf.transformer.checkpointing import INPUT, SelectiveBlock
from lmperf.transformer.graphed import Graphed
from lmperf.transformer.implementations import compile_static
from lmperf.transformer.model import TransformerLM, blocks_of
from lmperf.transformer.steps import GRAPH, copying_adamw
from lmperf.transformer.training import WithLoss

# How the blocks run, if not as they are (`eager`) -> what replaces a block.
BLOCKS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": compile_static,
    "checkpointed": partial(SelectiveBlock, kept=INPUT),
}


@dataclass
class Setup:
    """What a strategy is applied to.

    Attributes:
        model: the eager model, the same on every rank; a strategy may change it. A user's has no
            such blocks: see `blocks_of`.
        compute_dtype: of matmuls under autocast; None: no autocast.
        optimizer_cls, options: the optimizer and its keyword arguments.
    """

    model: TransformerLM | nn.Module
    compute_dtype: torch.dtype | None
    options: dict[str, Any]
    optimizer_cls: type[Optimizer] = torch.optim.AdamW
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [name for name, _ in self.model.named_parameters()]

    def with_blocks(self, blocks: str) -> TransformerLM | nn.Module:
        """The model, whose blocks are replaced in place; the order of parameters stays."""
        if blocks == "eager":
            return self.model
        found = blocks_of(self.model)
        if found is None or (
            blocks == "checkpointed" and not isinstance(self.model, TransformerLM)
        ):
            raise Unsupported(f"{type(self.model).__name__} has no blocks that can be {blocks}")
        for index, block in enumerate(found):
            found[index] = BLOCKS[blocks](block)
        return self.model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return self.optimizer_cls(list(parameters), **self.options)


Tensors = Callable[[], Iterator[tuple[str, Tensor]]]


@dataclass
class Training:
    """A model on all ranks, with its optimizer.

    Attributes:
        model: local tokens [batch / ranks, seq_len] -> logits, or a `WithLoss`.
        start: called at the start of a step.
        finish: called between the backward pass and the optimizer's step.
        captures: whether the step is captured as a CUDA graph, if it runs on one.
        graph: the captured step, once there is one.
        weights: iterates over (name, whole weight), gathered on every rank in parts.
        gradients: likewise, averaged gradients; None: the strategy has no way to gather them.
    """

    model: nn.Module | WithLoss
    optimizer: Optimizer
    weights: Tensors
    gradients: Tensors | None
    start: Callable[[], None] = lambda: None
    finish: Callable[[], None] = lambda: None
    captures: bool = False
    graph: Graphed | None = None


def replicated(setup: Setup, module: nn.Module, optimizer: Optimizer) -> Training:
    """Training with all weights on every rank; they are those of `setup.model`."""
    named = list(zip(setup.names, setup.model.parameters(), strict=True))
    return Training(
        module,
        optimizer,
        weights=lambda: ((name, parameter.detach()) for name, parameter in named),
        gradients=lambda: ((name, parameter.grad) for name, parameter in named),
        finish=getattr(module, "finish_gradient_synchronization", lambda: None),
    )


def one_rank(setup: Setup, blocks: str = "eager") -> Training:
    """The plain step of one process."""
    model = setup.with_blocks(blocks)
    return replicated(setup, model, setup.optimizer(model.parameters()))


def data_parallel(
    setup: Setup,
    blocks: str = "eager",
    bucket_mb: float | None = None,
    overlapped: bool = True,
) -> Training:
    """Our `DataParallel`."""
    model = DataParallel(setup.with_blocks(blocks), bucket_mb, overlapped)
    return replicated(setup, model, setup.optimizer(model.parameters()))


def recommended(setup: Setup, sharded: bool = False, bucket_mb: float | None = None) -> Training:
    """The step that the report recommends on one GPU, on all ranks: see `ranked_adamw`.

    A single rank makes the step as it is.
    """
    if setup.compute_dtype != torch.bfloat16 or not isinstance(setup.model, TransformerLM):
        raise Unsupported("this step trains the report's model under bf16 autocast")
    model, ranks = setup.model, dist.get_world_size()
    groups = [{"params": list(model.parameters()), "eps": setup.options["eps"]}]
    prepare = copying_adamw
    if ranks > 1:
        prepare = partial(ranked_adamw, sharded=sharded, bucket_mb=bucket_mb)
    optimizer = prepare(model, setup.options["lr"], groups)
    named = list(zip(setup.names, model.parameters(), strict=True))

    def tensors(gradient: bool) -> Iterator[tuple[str, Tensor]]:
        for name, weight in named:
            if ranks > 1:
                yield name, optimizer.whole(weight, gradient)
            else:
                yield name, weight.grad if gradient else weight.detach()

    return Training(
        GRAPH.way(model),
        optimizer,
        weights=partial(tensors, False),
        gradients=partial(tensors, True),
        captures=True,
    )


def ddp(setup: Setup, blocks: str = "eager", compresses: bool = False) -> Training:
    """torch's DistributedDataParallel, whose gradients are views of its buckets.

    compresses: whether gradients are averaged in bf16.
    """
    model = _distributed_data_parallel(setup.with_blocks(blocks))
    if compresses:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    return replicated(setup, model, setup.optimizer(model.parameters()))


def _distributed_data_parallel(model: nn.Module) -> nn.Module:
    device = next(model.parameters()).device
    ids = None if device.type == "cpu" else [torch.cuda.current_device()]
    # The only buffers are RoPE's tables, which no step changes. torch 2.13 renames the option.
    options = inspect.signature(nn.parallel.DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers"
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=ids,
        gradient_as_bucket_view=True,
        static_graph=True,
        **{buffers: False},
    )


def sharded_optimizer(setup: Setup) -> Training:
    """Our `ShardedOptimizer` after overlapped all-reduces of the gradients."""
    model = DataParallel(setup.model)
    optimizer = ShardedOptimizer(model.parameters(), setup.optimizer_cls, **setup.options)
    return replicated(setup, model, optimizer)


def zero_redundancy(setup: Setup) -> Training:
    """torch's ZeroRedundancyOptimizer after DistributedDataParallel."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = _distributed_data_parallel(setup.model)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), setup.optimizer_cls, parameters_as_bucket_view=True, **setup.options
    )
    return replicated(setup, model, optimizer)


def fully_sharded(setup: Setup, blocks: str = "eager") -> Training:
    """Our `FullySharded`."""
    model = FullySharded(setup.with_blocks(blocks), setup.compute_dtype)
    plain = dict(zip(model.names, setup.names, strict=True))

    def tensors(gradients: bool) -> Iterator[tuple[str, Tensor]]:
        return ((plain[name], tensor) for name, tensor in model.full_tensors(gradients))

    return Training(
        model,
        setup.optimizer(model.parameters()),
        weights=partial(tensors, False),
        gradients=partial(tensors, True),
        finish=model.finish_gradient_synchronization,
    )


def fsdp2(setup: Setup, blocks: str = "eager", keeps: bool = False) -> Training:
    """torch's `fully_shard` of each block, the head and the embedding; of a user's model, of each
    block alone, and of the rest as one.

    Matrices and the blocks' norms are gathered in the compute dtype, gradients averaged in float32;
    the embedding and the last norm stay in float32, as under autocast. While a block runs, the
    weights of the next one are gathered.

    keeps: whether ranks keep the gathered weights from the forward to the backward pass (as in ZeRO
        stage 2) and average gradients in the compute dtype.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = setup.with_blocks(blocks)
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    casting = MixedPrecisionPolicy(
        param_dtype=setup.compute_dtype,
        reduce_dtype=setup.compute_dtype if keeps else torch.float32,
        cast_forward_inputs=False,
    )
    is_ours = isinstance(model, TransformerLM)
    units = [*(blocks_of(model) or ()), *([model.head] if is_ours else ())]
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=casting, reshard_after_forward=not keeps)
    for unit, following in pairwise(units):
        unit.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([unit])
    if is_ours:
        fully_shard(model.embedding, mesh=mesh, reshard_after_forward=not keeps)
    fully_shard(model, mesh=mesh)
    named = list(zip(setup.names, model.parameters(), strict=True))
    return Training(
        model,
        setup.optimizer(model.parameters()),
        weights=lambda: ((name, parameter.detach().full_tensor()) for name, parameter in named),
        gradients=lambda: ((name, parameter.grad.full_tensor()) for name, parameter in named),
    )
