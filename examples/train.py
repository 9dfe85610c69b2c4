"""Trains a language model on a file of tokens with the train step that the report recommends.

    python examples/train.py tokens.bin --vocab 50304 --size small --checkpoint run.pt

The file holds tokens below --vocab as uint16, one after the other, with nothing before them. If
run.pt exists, training goes on from there, on as many GPUs as you like. On several GPUs, each with
a part of the batch and, by --zero1, with a part of AdamW's state:

    torchrun --nproc-per-node 2 examples/train.py tokens.bin --size 3.4B --batch 16 --zero1

The printed loss is then that of the first GPU's part.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from lmperf.transformer.model import TransformerLM
from lmperf.transformer.sizes import SHORT
from lmperf.transformer.steps import FP8_GRAPH, GRAPH
from lmperf.transformer.trainer import Trainer
from lmperf.transformer.training import decay_groups

VALIDATION_SHARE = 0.01


def options(ranks: int) -> argparse.Namespace:
    """What the command line says; ends the program if that cannot be done on so many ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=Path, help="file of uint16 tokens")
    parser.add_argument("--vocab", type=int, default=50_304, help="size of the vocabulary")
    parser.add_argument("--size", choices=[*SHORT], default="small")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step, on all GPUs")
    parser.add_argument("--micro-batch", type=int, help="sequences of a forward pass, on a GPU")
    parser.add_argument("--dtype", default="autocast_bfloat16", help='or "bfloat16"')
    parser.add_argument("--float8", action="store_true", help="over bfloat16 weights, on one GPU")
    zero1 = "on several GPUs, each keeps a part of AdamW's state (ZeRO-1): less memory"
    parser.add_argument("--zero1", action="store_true", help=zero1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=100, help="steps of a rising rate")
    parser.add_argument("--learning-rate", type=float, default=6e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--max-norm", type=float, default=1.0, help="of the gradients")
    parser.add_argument("--every", type=int, default=100, help="steps between two validations")
    parser.add_argument("--checkpoint", type=Path, help="where to save, and to go on from")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    if words := mistake(given, ranks):
        parser.exit(2, f"{parser.prog}: {words}\n")
    return given


def mistake(given: argparse.Namespace, ranks: int) -> str:
    """What is wrong with the options on a number of ranks, or nothing."""
    if given.zero1 and ranks == 1:
        return "--zero1 needs several processes: start them with torchrun --nproc-per-node 2"
    if given.float8 and ranks > 1:
        return f"--float8 trains on one GPU, not on {ranks}"
    if given.dtype != "autocast_bfloat16" and ranks > 1:
        return f"--dtype {given.dtype} trains on one GPU; {ranks} train with autocast_bfloat16"
    parts = ranks * (given.micro_batch or 1)
    if given.batch % parts:
        return f"--batch {given.batch} is no multiple of {parts}, processes times --micro-batch"
    return ""


@contextmanager
def process_group(device: str, ranks: int) -> Iterator[int]:
    """This process's rank in a group of those that torchrun has started, while it is active."""
    if ranks == 1:
        yield 0
        return
    options = {}
    if device == "cuda":
        options["device_id"] = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(options["device_id"])
    dist.init_process_group(**options)
    yield dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()


def batch(data: Tensor, step: int, size: int, context: int) -> tuple[Tensor, Tensor]:
    """Random sequences [size, context] and their successors, the same for a step in every run."""
    chance = torch.Generator().manual_seed(step)
    starts = torch.randint(len(data) - context, (size,), generator=chance)
    rows = torch.stack([data[start : start + context + 1] for start in starts]).long()
    return rows[:, :-1], rows[:, 1:]


def learning_rate(step: int, given: argparse.Namespace) -> float:
    """A linear rise, then half a cosine down to a tenth."""
    if step < given.warm_up:
        return given.learning_rate * (step + 1) / given.warm_up
    done = (step - given.warm_up) / max(1, given.steps - given.warm_up)
    return given.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def validation_loss(trainer: Trainer, data: Tensor, given: argparse.Namespace) -> float:
    """The mean loss of eight batches that training never sees."""
    size = given.micro_batch or given.batch
    parts = (batch(data, number, size, given.context) for number in range(8))
    return float(torch.stack([trainer.loss(*part) for part in parts]).mean())


def trainer_of(model: TransformerLM, given: argparse.Namespace, ranks: int) -> Trainer:
    """The trainer of a model; on several ranks each makes one."""
    settings = {
        "groups": decay_groups(model, given.weight_decay),
        "max_norm": given.max_norm,
        "micro_batch": given.micro_batch,
    }
    if ranks > 1:
        from lmperf.distributed.ranked_trainer import RankedTrainer

        return RankedTrainer(model, sharded=given.zero1, **settings)
    if given.float8:
        return Trainer(model, FP8_GRAPH, "bfloat16", **settings)
    return Trainer(model, GRAPH, given.dtype, **settings)


def train(given: argparse.Namespace, rank: int, ranks: int) -> None:
    data = torch.from_file(
        str(given.tokens), size=given.tokens.stat().st_size // 2, dtype=torch.uint16
    )
    held_out = int(VALIDATION_SHARE * len(data)) + given.context + 1
    data, validation = data[:-held_out], data[-held_out:]
    torch.manual_seed(0)
    with torch.device(given.device):
        model = TransformerLM.of_size(SHORT[given.size], given.vocab, given.context)
    trainer = trainer_of(model, given, ranks)
    first = 0
    if given.checkpoint and given.checkpoint.exists():
        saved = torch.load(given.checkpoint, map_location="cpu", mmap=True)
        trainer.load_state_dict(saved["trainer"])
        first = saved["step"]
    began, counted = time.perf_counter(), 0
    for step in range(first, given.steps):
        trainer.learning_rate = learning_rate(step, given)
        tokens, targets = batch(data, step, given.batch, given.context)
        loss = trainer.step(tokens.chunk(ranks)[rank], targets.chunk(ranks)[rank])
        counted += given.batch * given.context
        if (step + 1) % given.every and step + 1 < given.steps:
            continue
        if rank == 0:
            words = f"loss {float(loss):.3f}, norm {float(trainer.gradient_norm):.2f}"
            rate = counted / (time.perf_counter() - began)
            held = validation_loss(trainer, validation, given)
            words = f"{words}, validation {held:.3f}, {rate:,.0f} tokens/s"
            print(f"step {step + 1}: {words}", flush=True)
        if given.checkpoint:
            save(trainer, step + 1, given.checkpoint, rank)
        began, counted = time.perf_counter(), 0


def save(trainer: Trainer, step: int, path: Path, rank: int) -> None:
    """Save a trainer after a number of steps; rank 0 writes what it gets from all ranks."""
    state = {"trainer": trainer.state_dict(), "step": step}
    if rank == 0:
        part = path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, path)


def main() -> None:
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    given = options(ranks)
    with process_group(given.device, ranks) as rank:
        # A function of its own: its CUDA graphs must be gone before NCCL ends their communicator.
        train(given, rank, ranks)


if __name__ == "__main__":
    main()
