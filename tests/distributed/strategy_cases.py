"""What the tests of strategies run on each rank."""

import sys
import weakref
from collections.abc import Mapping
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from vocabularies import use_words

from lmperf.benchmark import Rank, Unsupported
from lmperf.benchmarks import load
from lmperf.distributed import strategies
from lmperf.distributed.data_parallel import DataParallel
from lmperf.distributed.distributed_problem import DistributedProblem, release
from lmperf.distributed.fully_sharded import FullySharded
from lmperf.distributed.gating import Reference, Timed
from lmperf.distributed.sharded_optimizer import ShardedOptimizer
from lmperf.measuring.live_tensors import state_of
from lmperf.own.model import build as build_own
from lmperf.own.strategy import trained
from lmperf.selftest.planted.strategies import leaves_out_a_gradient
from lmperf.transformer.sizes import SIZES, ModelSize

BENCHMARK = load("distributed")
AUTOCAST = "autocast_bfloat16"
# The whole model is smaller than a bucket of 10 MB.
ONE_BUCKET = ("bucket_10", "bucket_100", "bucket_1000")
EAGER = [
    one.name
    for one in BENCHMARK.implementations
    if not one.compiles and one.name not in ("one_rank", *ONE_BUCKET)
]
# In autocast, those whose classes treat dtypes differently.
NAMES = {
    "float32": EAGER,
    AUTOCAST: ["overlapped", "sharded_optimizer", "fully_sharded_checkpointed", "fsdp2"],
}
# A twentieth of the parameters of `tiny`. Norms of 128 weights are split without padding.
TOY = ModelSize(128, 128, 2, 2, short="toy")


def use_toy(patch: pytest.MonkeyPatch) -> None:
    """Make `toy` a size of models, with its own vocabulary."""
    patch.setitem(SIZES, "toy", TOY)
    use_words(patch)


def problem_of(rank: Rank, dtype: str = "float32") -> DistributedProblem:
    size = "tiny" if rank.device == "cuda" else "toy"
    return DistributedProblem(size, 16, 2 * rank.ranks, dtype, rank, seed=1)


def gates(rank: Rank, dtype: str, names) -> dict[str, dict]:
    """Name -> verdicts of gate and check, worst errors, models alive; of those that can run."""
    problem = problem_of(rank, dtype)
    reference = Reference(problem)
    found = {}
    for name in names:
        if (name.startswith("one_rank")) != (rank.ranks == 1):
            continue
        if name.endswith("_graph") and dtype != AUTOCAST:  # the recommended step
            continue
        build, blocks = BENCHMARK.build_of(name)
        tolerance = BENCHMARK.implementation(name).tolerance
        alive = []
        gate = reference.gate(partial(_remembered, alive, build), blocks, tolerance)
        timed = Timed(problem, build)
        problem.freshen(7)
        timed.run()
        check = timed.check(timed.run())
        del timed
        release()
        if rank.device == "cuda":
            torch._dynamo.reset()  # it compiles a function for eight models at most
        found[name] = {
            "gate": gate.columns,
            "check": check.columns,
            "alive": sum(model() is not None for model in alive),
        }
    return found


def _remembered(alive: list, build, setup) -> strategies.Training:
    alive.append(weakref.ref(setup.model))
    alive.append(weakref.ref(next(setup.model.parameters())))
    return build(setup)


class WrongNumber(DataParallel):
    """Averages over one rank more than there are."""

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        for parameter in self.parameters():
            parameter.grad *= dist.get_world_size() / (dist.get_world_size() + 1)


class StaleWeights(FullySharded):
    """Gathers the weights of one unit before the optimizer has updated them."""

    def __init__(self, module: nn.Module, compute_dtype=None):
        super().__init__(module, compute_dtype)
        shard = self._shards[2]
        master, gather, old = shard.master, shard.gather, [shard.master.detach().clone()]

        def stale_gather():
            if not shard.is_gathered and not self._in_backward:
                now = master.detach().clone()
                with torch.no_grad():
                    master.copy_(old[0])
                    gather()
                    shard.wait()
                    master.copy_(now)
                old[0] = now
            else:
                gather()

        shard.gather = stale_gather


class NoGather(ShardedOptimizer):
    """Keeps the updates of the last chunk on the rank that made them."""

    def step(self):
        self._chunks[-1][1].gather = lambda: dist.all_reduce(
            torch.zeros(1, device=self._chunks[-1][1].flat.device), async_op=True
        )
        super().step()


PLANTED = {
    "wrong_number": WrongNumber,
    "leaves_out_a_gradient": leaves_out_a_gradient,
    "stale_weights": StaleWeights,
    "no_gather": NoGather,
}


class OtherNames(nn.Module):
    """A wrapper that is told of a step by methods of names of its own."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.reducing, self.started = DataParallel(module), 0

    def forward(self, tokens):
        return self.reducing(tokens)

    def sync_gradients(self):
        if self.started != 1:
            raise RuntimeError(f"the step was started {self.started} times")
        self.started = 0
        self.reducing.finish_gradient_synchronization()


def get_wrapper(module):
    return OtherNames(module)


def wrapper_on_train_batch_start(ddp_model, optimizer):
    ddp_model.started += 1


def wrapper_on_after_backward(ddp_model, optimizer):
    ddp_model.sync_gradients()


def _adapters() -> ModuleType:
    """The adapters of examples/course, whose package `tests` is not this one."""
    sys.path.append(str(COURSE))
    spec = spec_from_file_location("course_adapters", COURSE / "tests/adapters.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COURSE = Path(__file__).parents[2] / "examples/course"
_OF_COURSE = _adapters()
# Honest ones, as a user's own.
RIGHT = {
    "fsdp": FullySharded,
    "adapters": get_wrapper,
    "individual": _OF_COURSE.get_ddp_individual_parameters,
    "buckets": partial(_OF_COURSE.get_ddp_bucketed, bucket_size_mb=0.01),
    "state": _OF_COURSE.get_sharded_optimizer,
}


def planted(rank: Rank, classes: Mapping[str, Any]) -> dict[str, dict]:
    """Name of a class -> columns of the gate, and whether the check after a timed call passes.

    In autocast, with the wider bounds.
    """
    problem = problem_of(rank, AUTOCAST)
    reference, found = Reference(problem), {}
    for name, made in classes.items():
        build = partial(trained, made)
        gate = reference.gate(build, "eager", "strict")
        timed = Timed(problem, build)
        checked = timed.check(timed.run()).passed
        found[name] = gate.columns | {"checked": checked}
    return found


class NotSharded(DataParallel):
    """Fully sharded by name: every rank holds every weight."""

    def __init__(self, module: nn.Module, compute_dtype=None):
        super().__init__(module)

    def gather_full_params(self):
        return dict(self.module.named_parameters())


class Table(nn.Module):
    def __init__(self, rows: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(rows, width))

    def forward(self, tokens):
        return self.weight[tokens]


class OwnLM(nn.Module):
    """A model with layers of its author's, and no blocks."""

    def __init__(self, vocab_size, d_model):
        super().__init__()
        self.table, self.head = Table(vocab_size, d_model), Table(vocab_size, d_model)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens):
        return self.norm(self.table(tokens)) @ self.head.weight.T


class ByClass(nn.Module):
    """Shards the layers of class `Table`, and gathers them in each forward pass."""

    stale = False

    def __init__(self, module: nn.Module, compute_dtype=None):
        super().__init__()
        self.module, self.shards = module, {}
        for name, layer in module.named_modules():
            if isinstance(layer, Table):
                mine = layer.weight.detach().chunk(dist.get_world_size())[dist.get_rank()]
                self.shards[name] = nn.Parameter(mine.clone())
                del layer._parameters["weight"]

    def parameters(self, recurse: bool = True):
        return iter([*self.shards.values(), *self.module.parameters()])

    def _gathered(self, name: str) -> torch.Tensor:
        shard = self.shards[name].detach()
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard)
        return torch.cat(parts)

    def forward(self, tokens):
        for name in self.shards:
            layer = self.module.get_submodule(name)
            if not (self.stale and hasattr(layer, "weight")):
                layer.weight = self._gathered(name).requires_grad_()
            layer.weight.grad = None
        return self.module(tokens)

    def finish_gradient_synchronization(self):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        for name, shard in self.shards.items():
            whole = self.module.get_submodule(name).weight.grad / ranks
            dist.all_reduce(whole)
            shard.grad = whole.chunk(ranks)[rank].clone()
        for parameter in self.module.parameters():
            parameter.grad /= ranks
            dist.all_reduce(parameter.grad)

    def gather_full_params(self):
        gathered = {f"{name}.weight": self._gathered(name) for name in self.shards}
        return {**dict(self.module.named_parameters()), **gathered}


class StaleByClass(ByClass):
    stale = True


def on_own_model(rank: Rank) -> dict[str, Any]:
    """Name of a strategy that trains its author's model -> its gate, and whether the timed check
    passes."""
    from cs336_basics.model import BasicsTransformerLM

    makers = (ByClass, StaleByClass, WrongNumber, ShardedOptimizer)
    builds = {made.__name__: partial(trained, made) for made in makers}
    builds["fsdp2"] = BENCHMARK.build_of("fsdp2")[0]
    of_course = {"course_fsdp": partial(trained, _OF_COURSE.get_fsdp)}
    return {
        **_on_model(rank, OwnLM, builds),
        **_on_model(rank, BasicsTransformerLM, of_course),
    }


def _on_model(rank: Rank, model: type[nn.Module], builds: dict[str, Any]) -> dict[str, Any]:
    problem = DistributedProblem(
        "toy", 16, 2 * rank.ranks, "float32", rank, 1, partial(build_own, model)
    )
    reference, found = Reference(problem), {}
    for name, build in builds.items():
        gate = reference.gate(build, "eager", "strict")
        timed = Timed(problem, build)
        found[name] = gate.columns | {"checked": timed.check(timed.run()).passed}
    return found


class OtherName(nn.Module):
    """Reduces gradients in a method of another name than the course's."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def sync_gradients(self):
        pass


def refused(rank: Rank) -> dict[str, str]:
    """Name of a user's strategy -> why it is refused when it is made."""
    made = {"not_sharded": NotSharded, "other_name": lambda module: OtherNames(module)}
    found = {}
    for name, one in made.items():
        with pytest.raises(Unsupported) as error:
            trained(one, problem_of(rank).setup())
        found[name] = str(error.value)
    return found


class Tied(nn.Module):
    """A small model with a tied weight, a bias, a norm and a parameter without a gradient."""

    def __init__(self, tied: bool):
        super().__init__()
        self.first = nn.Linear(10, 12, bias=True)
        self.norm = nn.LayerNorm(12)
        self.second = nn.Linear(12, 12, bias=False)
        self.third = nn.Linear(12, 12, bias=False)
        self.fixed = nn.Parameter(torch.tensor([2.0, 2.0]), requires_grad=False)
        if tied:
            self.third.weight = self.second.weight

    def forward(self, x):
        return self.third(self.norm(self.second(torch.relu(self.first(x)))))


def course(rank: Rank) -> dict[str, Any]:
    """Ours against one process, on the courses' kind of toy model.

    `errors`: name -> the largest error of a weight; `states`: name of a sharded optimizer ->
    elements of one moment on this rank; `tied`: the error for a parameter of two units.
    """
    wrappers = {
        "overlapped": (DataParallel, True),
        "bucketed": (partial(DataParallel, bucket_mb=0.0005), True),
        "fully_sharded": (FullySharded, False),
    }
    errors = {name: _course_error(rank, wrap, tied) for name, (wrap, tied) in wrappers.items()}
    states = {}
    for name, chunk_mb in {"sharded": 500.0, "sharded_in_chunks": 0.0005}.items():
        errors[name], states[name] = _sharded_optimizer(chunk_mb)
    with pytest.raises(ValueError) as refused:
        FullySharded(Tied(True))
    return {"errors": errors, "states": states, "tied": str(refused.value)}


def _course_error(rank: Rank, wrap, tied: bool) -> float:
    torch.manual_seed(0)
    plain = Tied(tied)
    torch.manual_seed(rank.number)  # the wrapper must copy the weights of rank 0
    mine = Tied(tied)
    model = wrap(mine)
    one = torch.optim.SGD(plain.parameters(), lr=0.1)
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(2, 4 * rank.ranks, 10, generator=torch.Generator().manual_seed(3))
    y = torch.cat((y, y[:, :2]), dim=1)
    for _ in range(4):
        one.zero_grad(set_to_none=True)
        nn.functional.mse_loss(plain(x), y).backward()
        one.step()
        ours.zero_grad(set_to_none=True)
        part = slice(4 * rank.number, 4 * (rank.number + 1))
        nn.functional.mse_loss(model(x[part]).float(), y[part]).backward()
        model.finish_gradient_synchronization()
        ours.step()
    gathered = hasattr(model, "gather_full_params")
    got = model.gather_full_params() if gathered else dict(mine.named_parameters())
    return _largest_difference(
        [got[name] for name, _ in plain.named_parameters()], plain.parameters()
    )


def _sharded_optimizer(chunk_mb: float) -> tuple[float, int]:
    """The largest error of a weight, and the elements of one moment on this rank."""
    torch.manual_seed(0)
    plain, mine = Tied(False), Tied(False)
    mine.load_state_dict(plain.state_dict())
    groups = [
        [
            {"params": [*model.first.parameters()], "lr": 0.01},
            {"params": [*model.norm.parameters(), *model.second.parameters()]},
        ]
        for model in (plain, mine)
    ]
    options = {"lr": 0.1, "weight_decay": 0.1}
    one = torch.optim.AdamW(groups[0], **options)
    ours = ShardedOptimizer(groups[1], torch.optim.AdamW, chunk_mb=chunk_mb, **options)
    for optimizer, model in ((one, plain), (ours, mine)):
        optimizer.add_param_group({"params": [*model.third.parameters()], "lr": 0.05})
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in (one, ours)]
    x = torch.randn(5, 10)
    for _ in range(4):
        for optimizer, model, scheduler in zip((one, ours), (plain, mine), schedulers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
    # Two moments, and in chunks of parameters the pieces and the buffer are no state.
    chunks = {chunk.flat.untyped_storage()._cdata for _, chunk in ours._chunks}
    state = [t for t in state_of(ours) if t.untyped_storage()._cdata not in chunks and t.ndim]
    return _largest_difference(plain.parameters(), mine.parameters()), sum(
        tensor.numel() for tensor in state
    ) // 2


def _largest_difference(some, others) -> float:
    pairs = zip(some, others, strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)
