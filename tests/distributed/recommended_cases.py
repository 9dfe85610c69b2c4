"""The recommended step on several ranks, and one process on the same data: a tiny model."""

from __future__ import annotations

import runpy
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import strategy_cases
import torch
import torch.distributed as dist
from strategy_cases import AUTOCAST, problem_of

from lmperf.benchmark import Rank, Unsupported
from lmperf.distributed.ranked_adamw import DATA_PARALLEL, SHARDED, RankedAdamW, _Bucket
from lmperf.distributed.strategies import recommended
from lmperf.transformer.sizes import SHORT
from lmperf.transformer.steps import GRAPH, copying_adamw
from lmperf.transformer.trainer import Trainer
from lmperf.transformer.training import gradients

NAMES = ("overlapped_graph", "sharded_optimizer_graph")
STEPS, RATE, EPS = 4, 2e-3, 1e-3
EXAMPLE = str(Path(__file__).parents[2] / "examples/train.py")
# Several buckets of each kind.
BUCKET_MB = 0.1


def run(rank: Rank) -> dict[str, Any]:
    """Everything of this module on a rank. Compilers are switched off for good."""
    torch.compiler.set_stance("force_eager")
    return {
        "gates": strategy_cases.gates(rank, AUTOCAST, NAMES),
        "steps": {
            is_sharded: steps(rank, sharded=is_sharded, bucket_mb=BUCKET_MB)
            for is_sharded in (False, True)
        },
        "alone": steps_alone(rank),
        "one_step": {"ranks": steps(rank, count=1), "alone": one_step(rank)},
        "planted": planted(rank),
        "example": example(rank),
        "trained": {name: trained(rank, name) for name in ("DATA_PARALLEL", "SHARDED")},
    }


def steps(rank: Rank, count: int = STEPS, **options) -> dict[str, Any]:
    """Weights after some steps, losses, and the elements of this rank's moments."""
    problem = problem_of(rank, AUTOCAST)
    training = recommended(problem.setup(RATE, EPS), **options)
    losses = []
    for step in range(count):
        problem.freshen(step)
        losses.append(problem.step(training))
    moments = [state["exp_avg"].numel() for state in training.optimizer.state.values()]
    return {"weights": dict(training.weights()), "losses": losses, "moments": sum(moments)}


def _alone(rank: Rank):
    """A problem, and its model in one process with the optimizer of the recommended step."""
    problem = problem_of(rank, AUTOCAST)
    setup = problem.setup()
    groups = [{"params": list(setup.model.parameters()), "eps": EPS}]
    optimizer = copying_adamw(setup.model, RATE, groups)
    return problem, setup.model, optimizer


def steps_alone(rank: Rank) -> dict[str, torch.Tensor]:
    """Weights of one process that averages the gradients of the ranks' parts in float32."""
    problem, model, optimizer = _alone(rank)
    run = GRAPH.way(model)
    for step in range(STEPS):
        problem.freshen(step)
        sums = dict.fromkeys(model.parameters(), 0.0)
        for part in range(rank.ranks):
            gradients(run, optimizer, *problem.part(part, rank.ranks), AUTOCAST)
            sums = {weight: sum + weight.grad.float() for weight, sum in sums.items()}
        for weight, total in sums.items():
            weight.grad = (total / rank.ranks).to(weight.grad_dtype)
        optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


def one_step(rank: Rank) -> dict[str, dict[str, torch.Tensor]]:
    """What one process has after a step on the whole batch, by name of a weight.

    `weight`; `gradient`, its magnitude; `parts`, the mean magnitude of those of the parts.
    """
    problem, model, optimizer = _alone(rank)
    run = GRAPH.way(model)
    problem.freshen(0)
    parts = dict.fromkeys(dict(model.named_parameters()), 0.0)
    for part in range(rank.ranks):
        gradients(run, optimizer, *problem.part(part, rank.ranks), AUTOCAST)
        for name, weight in model.named_parameters():
            parts[name] = parts[name] + weight.grad.float().abs() / rank.ranks
    gradients(run, optimizer, *problem.part(0, 1), AUTOCAST)
    whole = {name: weight.grad.float().abs() for name, weight in model.named_parameters()}
    optimizer.step()
    return {
        name: {"weight": weight.detach(), "gradient": whole[name], "parts": parts[name]}
        for name, weight in model.named_parameters()
    }


def planted(rank: Rank) -> dict[str, str]:
    """Fault -> status of the gate."""
    faults = {
        "copies are not gathered": (_Bucket, "gather", lambda self: None),
        "a bucket is not reduced": (RankedAdamW, "_ready", _all_but_the_first_bucket),
    }
    found = {}
    for name, (owner, method, function) in faults.items():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(owner, method, function)
            reference = strategy_cases.Reference(problem_of(rank, AUTOCAST))
            build = partial(recommended, sharded=name.startswith("copies"), bucket_mb=BUCKET_MB)
            found[name] = reference.gate(build, "eager", "strict").columns["status"]
    return found


def _all_but_the_first_bucket(self, number: int, ready=RankedAdamW._ready) -> None:
    if number:
        ready(self, number)
    elif number not in self._complete:
        self._complete.append(number)


def trained(rank: Rank, name: str) -> dict[str, Any]:
    """What a trainer on all ranks has after a step, with clipping and groups."""
    maker = {"DATA_PARALLEL": DATA_PARALLEL, "SHARDED": SHARDED}[name]
    problem = problem_of(rank, AUTOCAST)
    model = problem.setup().model
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    trainer = Trainer(model, maker, AUTOCAST, RATE, groups, max_norm=0.1)
    trainer.step(*problem.part(rank.number, rank.ranks))
    with pytest.raises(Unsupported, match="no micro-batch"):
        Trainer(problem.setup().model, maker, micro_batch=1)
    with pytest.raises(Exception, match="no micro-batches"):
        sequences = (part.unsqueeze(1) for part in problem.part(0, 1))
        gradients(GRAPH.way(model), trainer.optimizer, *sequences, AUTOCAST)
    return {
        "norm": trainer.gradient_norm,
        "weights": {
            key: trainer.optimizer.whole(weight) for key, weight in model.named_parameters()
        },
        "saved": _saved(trainer),
    }


def _saved(trainer: Trainer) -> str:
    """Why a trainer cannot save its state, or nothing."""
    try:
        trainer.state_dict()
    except Unsupported as refusal:
        return str(refusal)
    return ""


def example(rank: Rank) -> dict[str, dict[str, torch.Tensor]]:
    """Weights that the example saves after four steps: of one run, and of one that was resumed."""
    found, shared = {}, [tempfile.mkdtemp()]
    dist.broadcast_object_list(shared)
    folder = Path(shared[0])
    if rank.number == 0:
        torch.arange(4000).remainder(1000).to(torch.uint16).numpy().tofile(folder / "tokens")
    dist.barrier()
    for name, stops in {"once": [4], "resumed": [2, 4]}.items():
        for stop in stops:
            _run_example(rank, folder, name, stop)
        found[name] = torch.load(folder / name)["trainer"]["model"]
    return found


def _run_example(rank: Rank, folder: Path, name: str, stop: int) -> None:
    words = f"--size toy --vocab 1000 --context 16 --batch 4 --steps {stop} --every 2 --device cpu"
    words += f" --warm-up 10 --checkpoint {folder / name}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SHORT, "toy", strategy_cases.TOY)
        patched.setattr(sys, "argv", [EXAMPLE, str(folder / "tokens"), *words.split()])
        patched.setenv("WORLD_SIZE", str(rank.ranks))
        patched.setattr(dist, "init_process_group", lambda **_: None)
        runpy.run_path(EXAMPLE, run_name="__main__")
    dist.barrier()
