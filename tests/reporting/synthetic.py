"""Synthetic evidence: the columns of the real one, with times from a simple model of a machine."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd

from lmperf.reporting.evidence import MachineEvidence, read_frame

SIZES = {
    "tiny": (8.4e6, 256, 4),
    "small": (128.6e6, 768, 12),
    "medium": (423.2e6, 1024, 24),
    "large": (969.4e6, 1280, 36),
    "xl": (1.998e9, 1600, 48),
    "2.7B": (3.407e9, 2560, 32),
}
GIB = 2**30
GPU = {
    "device": "NVIDIA H200",
    "rates": {"float32": 52.0, "tf32": 390.0, "float16": 790.0, "bfloat16": 800.0},
    "bandwidth": 4280.0,
    "memory": 139 * GIB,
    "launch": 0.03,
}
CPU = {
    "device": None,
    "rates": {"float32": 0.12, "bfloat16": 0.03},
    "bandwidth": 18.0,
    "memory": 12 * GIB,
    "launch": 0.02,
}
PHASE_COST = {"forward": 1.0, "backward": 2.0, "forward_backward": 3.0, "train_step": 3.3}


PUBLISHED = Path(__file__).parents[2] / "report/nvidia-h200/evidence"
OBSERVED = ("profiles", "warmup", "memory_timeline", "attention_limit")


def observed(stem: str) -> pd.DataFrame:
    """Observations have no simple model: those that are published."""
    return read_frame(PUBLISHED / f"{stem}.csv")


class Builder:
    """Rows with statistics and rounds around a time; ``seed`` makes them reproducible."""

    def __init__(self, seed: int = 1, rounds: int = 7):
        self.random, self.rounds = random.Random(seed), rounds
        self.passes = itertools.count()

    def timed(self, ms: float, together: str, again: bool = False, noise: float = 0.004) -> dict:
        times = [ms * (1 + self.random.gauss(0, noise)) for _ in range(self.rounds)]
        second = [ms * (1 + self.random.gauss(0, noise)) for _ in range(self.rounds)]
        return {
            "status": "ok",
            "reason": None,
            "requested_bytes": None,
            "free_bytes": None,
            "median_ms": sorted(times)[len(times) // 2],
            "mean_ms": sum(times) / len(times),
            "std_ms": ms * noise,
            "p20_ms": min(times),
            "p80_ms": max(times),
            "repetitions": 100,
            "rounds_ms": ";".join(map(repr, times)),
            "again_ms": ";".join(map(repr, second)) if again else None,
            "together": together,
            "compile_s": None,
        }

    def failed(self, status: str, reason: str, requested=None, free=None) -> dict:
        return {
            "status": status,
            "reason": reason,
            "requested_bytes": requested,
            "free_bytes": free,
            **dict.fromkeys(("median_ms", "mean_ms", "std_ms", "rounds_ms", "again_ms")),
            "together": None,
        }

    def oom(self, requested: float, free: float) -> dict:
        return self.failed("oom", "CUDA out of memory", requested, free)

    def next_pass(self) -> str:
        return f"pass{next(self.passes):04d}"


def provenance(frame: pd.DataFrame, environment: str) -> pd.DataFrame:
    return frame.assign(
        seed=1,
        environment=environment,
        commit="0123abc",
        measured_at="2026-01-02T03:04:05Z",
        key=[f"k{i:06d}" for i in range(len(frame))],
    )


def ceilings(build: Builder, machine: dict) -> pd.DataFrame:
    rows = []
    for dtype, rate in machine["rates"].items():
        cell = {"operation": "matmul", "dtype": dtype, "implementation": "torch"}
        rows.append(
            {
                **cell,
                "phase": "forward",
                **build.timed(1.1e3 / rate, build.next_pass()),
                "tflops": rate,
            }
        )
    cell = {"operation": "copy", "dtype": "float32", "implementation": "torch"}
    rows.append(
        {
            **cell,
            "phase": "forward",
            **build.timed(0.5, build.next_pass()),
            "bandwidth_gbps": machine["bandwidth"],
        }
    )
    return pd.DataFrame(rows)


def end_to_end(build: Builder, machine: dict, sizes, contexts, dtypes, batch=4) -> pd.DataFrame:
    rows = []
    implementations = ("eager", "compiled", "compiled_blocks")
    for size, context, phase in itertools.product(sizes, contexts, PHASE_COST):
        together = build.next_pass()
        for dtype, name in itertools.product(dtypes, implementations):
            rows.append(
                _model_row(build, machine, size, context, batch, dtype, name, phase, together)
            )
    return pd.DataFrame(rows)


def _model_row(build, machine, size, context, batch, dtype, name, phase, together) -> dict:
    parameters, width, layers = SIZES[size]
    numerics = dtype.removeprefix("autocast_")
    tokens = batch * context
    flops = 2 * parameters * tokens * PHASE_COST[phase]
    peak = parameters * 16 / 2**20 + tokens * width * layers * 34 / 2**20
    host = 0.25 * layers * PHASE_COST[phase] * (0.4 if name != "eager" else 1.0)
    host *= 1.3 if numerics == "bfloat16" else 1.0
    work = flops / machine["rates"][numerics] / 1e9 / (0.45 if name == "eager" else 0.6)
    cell = {"size": size, "context_length": context, "batch": batch, "dtype": dtype}
    row = {**cell, "implementation": name, "phase": phase}
    if peak * 2**20 > machine["memory"]:
        return {**row, **build.oom(4 * GIB, GIB / 2), "parameters": parameters, "tokens": tokens}
    timing = build.timed(max(host, work), together, again=name == "eager")
    timing["compile_s"] = {"compiled": 20.0 + layers, "compiled_blocks": 6.0}.get(name)
    return {
        **row,
        **timing,
        "parameters": parameters,
        "tokens": tokens,
        "flops": flops,
        "peak_mib": peak,
        "max_error": 1e-4 if name != "eager" else None,
        "error_bound": 1e-3 if name != "eager" else None,
    }


SUMS = {
    "float32 + float32": 10.00013,
    "float16 + float16": 9.953125,
    "float32 + float16": 10.002136,
    "float32 + float32(float16)": 10.002136,
    "bfloat16 + bfloat16": 4.0,
    "float32 + bfloat16": 10.009766,
}


def mixed_precision(norm: str = "float32") -> pd.DataFrame:
    rows = [
        {
            "experiment": "accumulation",
            "subject": subject,
            "dtype": "float32",
            "implementation": "eager",
            "phase": "forward",
            "status": "ok",
            "reason": None,
            "value": value,
            "exact": 10.0,
        }
        for subject, value in SUMS.items()
    ]
    for dtype, name in itertools.product(("float16", "bfloat16"), ("eager", "compiled")):
        tensors = {
            ("fc1.weight", "parameter"): "float32",
            ("fc1", "output"): dtype,
            ("relu", "output"): dtype,
            ("ln", "output"): norm,
            ("fc2", "output"): dtype,
            ("logits", "logits"): dtype,
            ("loss", "loss"): "float32",
            ("fc1.weight.grad", "gradient"): "float32",
        }
        block = {
            ("attention_norm", "output"): "float32",
            ("attention", "output"): dtype,
            ("block", "output"): "float32",
            ("loss", "loss"): "float32",
        }
        seen = [("toy", *each) for each in tensors.items()]
        seen += [("transformer_block", *each) for each in block.items()]
        for subject, (tensor, kind), observed in seen:
            rows.append(
                {
                    "experiment": "dtypes",
                    "subject": subject,
                    "dtype": dtype,
                    "implementation": name,
                    "phase": "forward",
                    "status": "ok",
                    "reason": None,
                    "tensor": tensor,
                    "kind": kind,
                    "observed_dtype": observed,
                }
            )
    return pd.DataFrame(rows)


def memory(build: Builder, machine: dict, sizes, contexts, batch=4, instrument="caching allocator"):
    rows = []
    for size, context, dtype, phase in itertools.product(
        sizes, contexts, ("float32", "autocast_bfloat16"), ("forward", "train_step")
    ):
        parameters, width, layers = SIZES[size]
        mib, train = parameters * 4 / 2**20, phase == "train_step"
        half = dtype != "float32"
        activations = batch * context * width * layers * (34 if train else 2) * 4 / 2**20
        activations = activations * (0.55 if half else 1) + (mib / 2 if half else 0)
        row = {
            "size": size,
            "context_length": context,
            "batch": batch,
            "dtype": dtype,
            "implementation": "eager",
            "phase": phase,
        }
        predicted = mib * (4 if train else 1) + activations
        row |= {
            "predicted_mib": predicted,
            "parameters_mib": mib,
            "gradients_mib": mib if train else 0.0,
            "optimizer_mib": 2 * mib if train else 0.0,
            "activations_mib": activations,
            "instrument": instrument,
        }
        if predicted * 2**20 > machine["memory"]:
            rows.append({**row, **build.oom(2 * GIB, GIB / 3)})
        else:
            peak = predicted * (1 + build.random.uniform(0.0, 0.03))
            rows.append({**row, "status": "ok", "reason": None, "peak_mib": peak})
    frame = pd.DataFrame(rows)
    order = ["size", "context_length", "batch", "dtype", "implementation", "phase"]
    return frame[order + [name for name in frame.columns if name not in order]]


def attention(build: Builder, machine: dict, d_heads, lengths, dtypes, batch=8) -> pd.DataFrame:
    rows = []
    for d, n, phase in itertools.product(d_heads, lengths, ("forward", "backward")):
        together = build.next_pass()
        for dtype, name in itertools.product(dtypes, ("eager", "compiled")):
            width = 2 if dtype == "bfloat16" else 4
            scores = batch * n * n * width
            resident = 3 * batch * n * d * width / 2**20
            flops = 4 * batch * n * n * d * PHASE_COST[phase]
            row = {
                "batch": batch,
                "seq_len": n,
                "d_head": d,
                "dtype": dtype,
                "causal": True,
                "implementation": name,
                "phase": phase,
            }
            if 4 * scores > machine["memory"]:
                rows.append({**row, **build.oom(scores, machine["memory"] / 10)})
                continue
            traffic = scores * (5 if name == "eager" else 2.5) * PHASE_COST[phase]
            ms = machine["launch"] * 5 + traffic / machine["bandwidth"] / 1e6
            rows.append(
                {
                    **row,
                    **build.timed(ms, together, again=name == "eager"),
                    "saved_mib": resident + 2 * scores / 2**20,
                    "peak_mib": resident + 3 * scores / 2**20,
                    "resident_mib": resident,
                    "flops": flops,
                    "bytes": traffic,
                    "max_error": 2e-4,
                    "error_bound": 1e-3,
                }
            )
    return pd.DataFrame(rows)


def flash_attention(
    build,
    machine,
    lengths,
    d_heads,
    dtypes,
    implementations,
    batch=1,
    heads=1,
    causal=True,
    cuda_graph=False,
) -> pd.DataFrame:
    rows = []
    costs = {"forward": 1.0, "backward": 2.5, "forward_backward": 3.5}
    speeds = {"eager": 0.02, "triton": 0.6, "tiled": 0.05, "sdpa_cudnn": 0.5, "sdpa_flash": 0.4}
    for n, d, dtype, phase in itertools.product(lengths, d_heads, dtypes, costs):
        together = build.next_pass()
        for name in implementations:
            flops = (2 if causal else 4) * batch * heads * n * n * d * costs[phase]
            row = {
                "batch": batch,
                "heads": heads,
                "seq_len": n,
                "d_head": d,
                "dtype": dtype,
                "causal": causal,
                "cuda_graph": cuda_graph,
                "implementation": name,
                "phase": phase,
            }
            if name in ("sdpa_cudnn", "sdpa_flash") and dtype == "float32":
                reason = f"{name} has no float32 kernel | see its documentation"
                rows.append({**row, **build.failed("unsupported", reason)})
                continue
            if name == "eager" and 12 * n * n > machine["memory"] / 4:
                rows.append({**row, **build.oom(4 * n * n, machine["memory"] / 20)})
                continue
            rate = machine["rates"][dtype] * speeds.get(name, 0.2)
            launches = 5 if name == "eager" else 1
            ms = machine["launch"] * launches * costs[phase] + flops / rate / 1e9
            errors = _errors(build, dtype, name)
            rows.append(
                {
                    **row,
                    **build.timed(ms, together, again=name == "eager"),
                    "flops": flops,
                    "tflops": flops / ms / 1e9,
                    "peak_mib": 24 * batch * heads * n * d / 2**20,
                    **errors,
                }
            )
    return pd.DataFrame(rows)


def flash_attention_gpu(build, machine) -> pd.DataFrame:
    """One head, the same as a CUDA graph, and the grid that fills."""
    backends = ("triton", "sdpa_cudnn", "sdpa_flash", "sdpa_efficient")
    single = [2**i for i in range(7, 17)], (16, 64, 128), ("bfloat16", "float32")
    frames = [
        flash_attention(build, machine, *single, ("eager", *backends, "flex")),
        flash_attention(build, machine, (128, 1024), (64,), ("bfloat16",), backends, cuda_graph=1),
    ]
    for n, d, causal in itertools.product((1024, 16384), (64, 128), (True, False)):
        grid = {"batch": 16384 // n, "heads": 2048 // d, "causal": causal}
        cell = [n], [d]
        half, single = ("bfloat16",), ("float32", "tf32")
        frames += [
            flash_attention(build, machine, *cell, half, (*backends, "flex"), **grid),
            flash_attention(build, machine, *cell, single, ("triton", "sdpa_efficient"), **grid),
        ]
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(cuda_graph=frame["cuda_graph"].astype(bool))


def _errors(build: Builder, dtype: str, name: str) -> dict:
    unit = {"float32": 2e-7, "float16": 5e-4}.get(dtype, 4e-3)
    factor = 1.4 if name != "eager" else 1.0
    errors = {
        f"error_{t}": unit * factor * build.random.uniform(0.7, 1.0)
        for t in ("out", "lse", "dq", "dk", "dv")
    }
    return {"max_error": max(errors.values()), "error_bound": 3 * unit, **errors}


def flash_attention_check(build: Builder, dtypes) -> pd.DataFrame:
    rows = [
        {
            "batch": 2,
            "heads": 2,
            "seq_len": n,
            "d_head": d,
            "dtype": dtype,
            "causal": causal,
            "layout": layout,
            "implementation": "triton",
            "phase": "forward_backward",
            "status": "ok",
            "reason": None,
            **_errors(build, dtype, "triton"),
        }
        for n, d, dtype, causal, layout in itertools.product(
            (1, 127), (16, 80), dtypes, (True, False), ("contiguous", "strided")
        )
    ]
    return pd.DataFrame(rows)


LRPE_SPEED = {"copy": 1.0, "triton": 0.96, "triton_cached": 0.88, "compiled": 0.3, "eager": 0.08}
LRPE_KEPT = {"triton": 0.0, "triton_cached": 2.0, "compiled": 1.0, "eager": 3.0}


def lrpe(build, machine, shapes, extra_tokens, dtype, implementations, batch=12) -> pd.DataFrame:
    rows = []
    heads, d, width = 12, 128, 2 if dtype == "bfloat16" else 4
    cells = itertools.product(shapes, extra_tokens, ("forward", "backward"))
    for shape, extra, phase in cells:
        together = build.next_pass()
        positions = math.prod(int(length) for length in shape.split("x"))
        x = batch * heads * (positions + extra) * d * width
        for name in implementations:
            ms = machine["launch"] / 3 + 3 * x / machine["bandwidth"] / 1e6 / LRPE_SPEED[name]
            row = {
                "batch": batch,
                "heads": heads,
                "shape": shape,
                "d_head": d,
                "extra_tokens": extra,
                "dtype": dtype,
                "implementation": name,
                "phase": phase,
                **build.timed(ms, together, again=name == "copy", noise=0.001),
                "bytes": 3 * x,
            }
            if name != "copy":
                kept = LRPE_KEPT[name] * 4 * x / batch / width
                row |= {
                    "predicted_forward_mib": (3 * x + kept) / 2**20,
                    "predicted_backward_mib": (6 * x + kept) / 2**20,
                    "peak_mib": ((3 if phase == "forward" else 6) * x * 1.01 + kept) / 2**20,
                    **_lrpe_errors(build, dtype),
                }
            rows.append(row)
    return pd.DataFrame(rows)


def _lrpe_errors(build: Builder, dtype: str) -> dict:
    unit = {"float32": 6e-8, "float16": 5e-4}.get(dtype, 4e-3)
    names = ("out", "dx", "angle", "norm", "inverse", "difference")
    errors = {f"error_{name}": unit * build.random.uniform(0.5, 0.8) for name in names}
    return {"max_error": max(errors.values()), "error_bound": unit, **errors}


def lrpe_check(build: Builder, dtypes) -> pd.DataFrame:
    rows = [
        {
            "batch": 2,
            "heads": 2,
            "shape": shape,
            "d_head": 40,
            "extra_tokens": 3,
            "dtype": dtype,
            "implementation": name,
            "phase": "forward_backward",
            "status": "ok",
            "reason": None,
            **_lrpe_errors(build, dtype),
        }
        for shape, dtype, name in itertools.product(
            ("37", "5x7"), dtypes, ("triton", "triton_cached")
        )
    ]
    return pd.DataFrame(rows)


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
    """A job for each benchmark, most of its seconds inside measurement."""
    kinds = ("timing_s", "first_calls_s", "observing_s", "preparing_s", "checking_s", "memory_s")
    seconds = dict(zip((*kinds, "start_s", "other_s"), (12, 4, 0, 1, 1, 0, 1, 1), strict=True))
    window = {"started_at": "2026-01-02T03:00:00Z", "finished_at": "2026-01-02T03:30:00Z"}
    return pd.DataFrame([{"stem": s, **window, "wall_s": 20.0, **seconds} for s in stems])


def gpu_evidence(seed: int = 1) -> MachineEvidence:
    build = Builder(seed)
    dtypes = ("float32", "tf32", "autocast_bfloat16")
    sizes, contexts = ("small", "medium", "large", "xl", "2.7B"), (128, 256, 512, 1024)
    frames = {
        "ceilings": ceilings(build, GPU),
        "end_to_end": end_to_end(build, GPU, sizes, contexts, dtypes),
        "mixed_precision": mixed_precision(),
        "memory": memory(build, GPU, sizes, contexts),
        "attention": attention(
            build,
            GPU,
            (16, 32, 64, 128),
            (256, 1024, 4096, 8192, 16384, 65536),
            ("float32", "tf32", "bfloat16"),
        ),
        "flash_attention": flash_attention_gpu(build, GPU),
        "flash_attention_check": flash_attention_check(build, ("float32", "float16", "bfloat16")),
        "lrpe": lrpe(
            build,
            GPU,
            ("256", "8192", "16384", "32768", "16x16", "128x128", "4x4x4", "32x32x32"),
            (0, 10),
            "bfloat16",
            tuple(LRPE_SPEED),
        ),
        "lrpe_check": lrpe_check(build, ("float32", "bfloat16")),
    }
    frames |= {stem: observed(stem) for stem in OBSERVED}
    frames = {stem: provenance(frame, "e1") for stem, frame in frames.items()}
    known = facts("nvidia-h200", "cuda", "NVIDIA H200")
    return MachineEvidence("nvidia-h200", known, frames, cost=cost(frames))


def cpu_evidence(seed: int = 2) -> MachineEvidence:
    build = Builder(seed, rounds=5)
    frames = {
        "ceilings": ceilings(build, CPU),
        "end_to_end": end_to_end(
            build, CPU, ("tiny", "small"), (128,), ("float32", "autocast_bfloat16"), batch=4
        ),
        "mixed_precision": mixed_precision(norm="float16"),
        "memory": memory(build, CPU, ("tiny", "small"), (128, 256), instrument="live tensors"),
        "attention": attention(build, CPU, (16, 64), (128, 256, 512), ("float32",), batch=4),
        "flash_attention": flash_attention(
            build, CPU, (128, 256, 512, 1024), (64,), ("float32",), ("eager", "tiled", "sdpa")
        ),
        "flash_attention_check": flash_attention_check(build, ("float32", "float16")),
        "lrpe": lrpe(
            build,
            CPU,
            ("1024", "32x32"),
            (0,),
            "float32",
            ("copy", "eager", "compiled"),
            batch=2,
        ),
        "lrpe_check": lrpe_check(build, ("float32", "float16")),
    }
    frames = {stem: provenance(frame, "e1") for stem, frame in frames.items()}
    return MachineEvidence("cpu-example", facts("cpu-example", "cpu", None), frames)


def grown(evidence: MachineEvidence, rows: int) -> MachineEvidence:
    """The same evidence with copies in cells of their own until it has so many rows."""
    stems = [stem for stem, frame in evidence.frames.items() if "batch" in frame]
    frames = dict(evidence.frames)
    for stem in stems:
        copies = -(-rows // len(stems) // len(frames[stem]))
        parts = [_in_other_cells(frames[stem], number) for number in range(copies)]
        frames[stem] = pd.concat(parts, ignore_index=True)
    return replace(evidence, frames=frames)


def _in_other_cells(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    copy = frame.copy()
    if "shape" in frame:
        copy["shape"] = frame["shape"].str.replace(
            r"^\d+", lambda length: f"{int(length[0]) + number}", regex=True
        )
    else:
        copy["batch"] += 1000 * number
    if "together" in frame:
        copy["together"] = copy["together"] + f"-{number}"
    return copy
