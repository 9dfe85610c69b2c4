"""Make rows of attention, FlashAttention-2 and md_lrpe_cosine, with errors and kernel tests."""

from __future__ import annotations

import itertools
import math

import pandas as pd

from lmperf.benchmark import Case
from lmperf.benchmarks.flash_attention import OTHER_SHAPES, FlashAttention
from synthetic.builder import PHASE_COST, Builder

_SUSTAINS = FlashAttention("flash_attention").sustains


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
            # Stay below the ceiling, even if a float32 product takes three half-precision ones.
            rates = machine["rates"]
            work = flops / max(rates[dtype], max(rates.values()) / 3) / 1e9
            ms = machine["launch"] * 5 + max(traffic / machine["bandwidth"] / 1e6, work)
            rows.append(
                {
                    **row,
                    **build.timed(ms, together, again=name == "eager"),
                    **build.host(machine, ms, 6),
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
    for n, d, phase in itertools.product(lengths, d_heads, costs):
        together = build.next_pass()
        for dtype, name in itertools.product(dtypes, implementations):
            if name == "sdpa_efficient" and dtype == "tf32":
                continue
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
            case = Case(tuple(list(row.items())[:7]), name)
            rows.append(
                {
                    **row,
                    **build.timed(ms, together, again=name == "eager"),
                    **(build.sustained(ms, True) if _SUSTAINS(case, phase) else {}),
                    **build.host(machine, ms, 4 * costs[phase]),
                    "flops": flops,
                    "tflops": flops / ms / 1e9,
                    "peak_mib": 24 * batch * heads * n * d / 2**20,
                    **errors,
                }
            )
    return pd.DataFrame(rows)


def flash_attention_gpu(build, machine) -> pd.DataFrame:
    """Rows with one head, one head in a CUDA graph, shapes that fill the GPU, and other shapes."""
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
    for batch, heads, n, d in OTHER_SHAPES:
        own = ("triton", "sdpa_cudnn", "sdpa_flash")
        frames.append(flash_attention(build, machine, [n], [d], half, own, batch, heads))
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
                **build.host(machine, ms, 2),
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
