"""Synthetic evidence: rows with the columns of measured ones and times from a simple model."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pandas as pd

from lmperf.measuring.stopwatch import KINDS
from lmperf.reporting.evidence import MachineEvidence, axes, having
from synthetic import checkpoints, kernels, limit, models, profiles, timeline, warmup
from synthetic.builder import CPU, GPU, Builder

SMALL_AXES = {
    "size": ["tiny", "small", "2.0B", "3.4B"],
    "context_length": [128, 512, 1024],
    "seq_len": [128, 256, 1024, 4096, 16384, 65536],
    "d_head": [16, 64],
}
TEMPLATES = Path(__file__).parents[3] / "templates"


def provenance(frame: pd.DataFrame, environment: str) -> pd.DataFrame:
    return frame.assign(
        seed=1,
        environment=environment,
        commit="0123abc",
        measured_at="2026-01-02T03:04:05Z",
        key=[f"k{i:06d}" for i in range(len(frame))],
    )


def facts(machine: str, kind: str, device: str | None, environments=("e1",)) -> dict:
    each = {
        "kind": kind,
        "device": device,
        "driver": "580.1" if device else None,
        "cuda": "13.0" if device else None,
        "torch": "2.11.0",
        "triton": "3.6.0",
        "python": "3.12.3",
        "os": "Linux",
        "cpu_model": "Example CPU | 2 cores",
        "cores": 2,
        "threads": 2,
        "memory_gib": 15.6,
        "device_memory_gib": 139.8 if device else None,
        "matmul_precision": "highest",
        "tf32_matmul": False,
        "tf32_cudnn": True,
        "commit": "0123abc",
        "dirty": False,
        "measured_at": "2026-01-02T03:04:05Z",
    }
    return {"machine": machine, "environments": {name: dict(each) for name in environments}}


def cost(stems) -> pd.DataFrame:
    """Rows on the cost of measuring: one job per benchmark, with its seconds per activity."""
    seconds = dict.fromkeys(KINDS, 0) | {"timing_s": 12, "first_calls_s": 4}
    seconds |= dict.fromkeys(("preparing_s", "checking_s", "start_s", "other_s"), 1)
    window = {"started_at": "2026-01-02T03:00:00Z", "finished_at": "2026-01-02T03:30:00Z"}
    return pd.DataFrame([{"stem": s, **window, "wall_s": 20.0, **seconds} for s in stems])


def gpu_evidence(seed: int = 1) -> MachineEvidence:
    """Evidence of an H200 with all sizes and lengths; each call returns a copy that may change."""
    return copy.deepcopy(_gpu_evidence(seed))


@cache
def _gpu_evidence(seed: int) -> MachineEvidence:
    build = Builder(seed)
    dtypes = ("float32", "tf32", "autocast_bfloat16")
    sizes, contexts = ("small", "medium", "large", "2.0B", "3.4B"), (128, 256, 512, 1024)
    frames = {
        "ceilings": models.ceilings(build, GPU),
        "end_to_end": models.ladder(
            build,
            GPU,
            models.end_to_end(build, GPU, sizes, contexts, dtypes),
            {"small": (4, 64), "large": (4, 16), "3.4B": (4, 8)},
        ),
        "ladder_loss": models.ladder_loss(("small", "large", "3.4B")),
        "mixed_precision": models.mixed_precision(),
        "memory": models.memory(build, GPU, sizes, contexts),
        "memory_timeline": timeline.memory_timeline(
            ("small", "2.0B"), 512, ("float32", "autocast_bfloat16")
        ),
        "attention": kernels.attention(
            build,
            GPU,
            (16, 32, 64, 128),
            (256, 1024, 4096, 8192, 16384, 65536),
            ("float32", "tf32", "bfloat16"),
        ),
        "attention_limit": limit.attention_limit(GPU),
        "flash_attention": kernels.flash_attention_gpu(build, GPU),
        "flash_attention_check": kernels.flash_attention_check(
            build, ("float32", "float16", "bfloat16")
        ),
        "lrpe": kernels.lrpe(
            build,
            GPU,
            ("256", "8192", "16384", "32768", "16x16", "128x128", "4x4x4", "32x32x32"),
            (0, 10),
            "bfloat16",
            tuple(kernels.LRPE_SPEED),
        ),
        "lrpe_check": kernels.lrpe_check(build, ("float32", "bfloat16")),
        "profiles": profiles.gpu(build),
    }
    numerics = ("float32", "autocast_bfloat16")
    frames["warmup"] = warmup.warmup(build, GPU, ("small", "medium", "large", "2.0B"), numerics)
    large = ("large", "3.4B")
    frames["checkpointing"] = checkpoints.checkpointing(build, GPU, large, 2048, numerics[1])
    frames["leaderboard"] = checkpoints.leaderboard(build)
    frames = {stem: provenance(frame, "e1") for stem, frame in frames.items()}
    known = facts("nvidia-h200", "cuda", "NVIDIA H200")
    return MachineEvidence("nvidia-h200", known, frames, cost=cost(frames))


def small_gpu_evidence() -> MachineEvidence:
    """GPU evidence with about a third of the rows; each call returns a copy that may change.

    It lacks the rows of end to end that only the ladder has.
    """
    return copy.deepcopy(_small_gpu_evidence())


@cache
def _small_gpu_evidence() -> MachineEvidence:
    evidence = small(_gpu_evidence(1))
    steps = evidence.frames["end_to_end"]
    pairs = pd.MultiIndex.from_frame(steps[["dtype", "implementation"]])
    kept = steps[~pairs.isin(list(models.LADDER))].reset_index(drop=True)
    return with_frames(evidence, end_to_end=kept)


def cpu_evidence(seed: int = 2) -> MachineEvidence:
    """Evidence of a machine without a GPU; each call returns a copy that may change."""
    return copy.deepcopy(_cpu_evidence(seed))


@cache
def _cpu_evidence(seed: int) -> MachineEvidence:
    build = Builder(seed, rounds=5)
    frames = {
        "ceilings": models.ceilings(build, CPU),
        "end_to_end": models.ladder(
            build,
            CPU,
            models.end_to_end(
                build, CPU, ("tiny", "small"), (128,), ("float32", "autocast_bfloat16"), batch=4
            ),
            {"tiny": (4,)},
            128,
        ),
        "ladder_loss": models.ladder_loss(("tiny",), ("float32", "autocast", "bf16_weights")),
        "mixed_precision": models.mixed_precision(norm="float16"),
        "memory": models.memory(
            build, CPU, ("tiny", "small"), (128, 256), instrument="live tensors"
        ),
        "memory_timeline": timeline.memory_timeline(("tiny",), 128, ("float32",)),
        "attention": kernels.attention(
            build, CPU, (16, 64), (128, 256, 512), ("float32",), batch=4
        ),
        "attention_limit": limit.attention_limit(CPU),
        "flash_attention": kernels.flash_attention(
            build, CPU, (128, 256, 512, 1024), (64,), ("float32",), ("eager", "tiled", "sdpa")
        ),
        "flash_attention_check": kernels.flash_attention_check(build, ("float32", "float16")),
        "lrpe": kernels.lrpe(
            build,
            CPU,
            ("1024", "32x32"),
            (0,),
            "float32",
            ("copy", "eager", "compiled"),
            batch=2,
        ),
        "lrpe_check": kernels.lrpe_check(build, ("float32", "float16")),
        "profiles": profiles.cpu(build),
        "warmup": warmup.warmup(build, CPU, ("tiny",), ("float32",), 128, reserves=False),
        "checkpointing": checkpoints.checkpointing(build, CPU, ("tiny",), 256, "float32"),
    }
    frames = {stem: provenance(frame, "e1") for stem, frame in frames.items()}
    return MachineEvidence("cpu-example", facts("cpu-example", "cpu", None), frames)


def with_frames(evidence: MachineEvidence, **frames: pd.DataFrame) -> MachineEvidence:
    """A copy of the evidence with the given rows for the given benchmarks.

    Unlike ``dataclasses.replace``, this function does not clean the text of every frame again.

    frames: name of a benchmark -> its rows.
    """
    changed = copy.copy(evidence)
    for field in fields(evidence):
        if isinstance(value := getattr(evidence, field.name), dict):
            setattr(changed, field.name, dict(value))
    changed.frames |= frames
    changed.derived = {}
    return changed


def differences(evidence: MachineEvidence, original: MachineEvidence) -> list[str]:
    """Names of the fields, and of the data frames by benchmark, that differ from the original."""
    names = {f.name for f in fields(evidence)} - {"frames", "cost", "lacking", "repeats", "derived"}
    found = [name for name in names if getattr(evidence, name) != getattr(original, name)]
    frames = (("frames", evidence.frames, original.frames),)
    frames += (("lacking", evidence.lacking, original.lacking),)
    frames += (("repeats", evidence.repeats, original.repeats),)
    for name, ours, theirs in frames:
        stems = {*ours, *theirs}
        found += [f"{name}[{s}]" for s in stems if not _equal(ours.get(s), theirs.get(s))]
    return found + ["cost"] * (not _equal(evidence.cost, original.cost))


def _equal(one: pd.DataFrame | None, other: pd.DataFrame | None) -> bool:
    return one is other if one is None or other is None else one.equals(other)


def small(evidence: MachineEvidence) -> MachineEvidence:
    """The evidence with only the values of SMALL_AXES, enough for every kind of table."""
    return replace(evidence, frames={stem: _small(f) for stem, f in evidence.frames.items()})


def _small(frame: pd.DataFrame) -> pd.DataFrame:
    for name in filter(axes(frame).__contains__, SMALL_AXES):
        fewer = having(frame, **{name: SMALL_AXES[name]})
        frame = frame if fewer.empty else fewer
    return frame
