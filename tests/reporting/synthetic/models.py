"""Make rows of ceilings, model steps, the ladder, memory and mixed precision."""

from __future__ import annotations

import itertools

import pandas as pd

from synthetic.builder import GIB, PHASE_COST, SIZES, Builder

FLOPS = 1.1e12
# Copy -> (dtype, rate relative to a plain copy). "widen" writes more bytes than it reads, "narrow"
# fewer.
COPIES = {"copy": ("float32", 1.0), "widen": ("bfloat16", 0.97), "narrow": ("float32", 1.02)}
# Shape -> rate relative to the best shape. SUSTAINED: relative rate of 100 calls back to back.
SHAPES = {"4096x4096x4096": 0.93, "8192x8192x8192": 1.0}
SUSTAINED = 0.9


def ceilings(build: Builder, machine: dict) -> pd.DataFrame:
    rows = [
        _ceiling(build, "matmul", dtype, shape, "burst", tflops=rate * share)
        for dtype, rate in machine["rates"].items()
        for shape, share in SHAPES.items()
    ]
    rows += [
        _ceiling(build, "matmul", dtype, "8192x8192x8192", "sustained", tflops=rate * SUSTAINED)
        for dtype, rate in machine["rates"].items()
    ]
    rows += [
        _ceiling(build, name, dtype, "536870912", "burst", gbps=machine["bandwidth"] * share)
        for name, (dtype, share) in COPIES.items()
    ]
    if machine["device"]:
        rows.append(_ceiling(build, "launch", "float32", "1", "burst"))
    return pd.DataFrame(rows)


def _ceiling(build: Builder, operation, dtype, shape, load, tflops=None, gbps=None) -> dict:
    calls = 100 if load == "sustained" else 1
    ms = calls * FLOPS / tflops / 1e9 if tflops else 0.5 if gbps else 0.0025
    return {
        "operation": operation,
        "dtype": dtype,
        "shape": shape,
        "load": load,
        "implementation": "torch",
        "phase": "forward",
        **Builder(rounds=build.rounds).timed(ms, build.next_pass(), noise=1e-4),
        "calls": calls if tflops else None,
        "flops": calls * FLOPS if tflops else None,
        "bytes": 0.5 * gbps * 1e6 if gbps else None,
        "tflops": tflops,
        "bandwidth_gbps": gbps,
        "clock_mhz": 1980.0 if load == "burst" else 1710.0,
    }


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
        **({"host_ms": host} if machine["device"] else {}),
        "parameters": parameters,
        "tokens": tokens,
        "flops": flops,
        "peak_mib": peak,
        "max_error": 1e-4 if name != "eager" else None,
        "error_bound": 1e-3 if name != "eager" else None,
    }


# Step of the ladder -> (time relative to matmuls at the float32 rate, loss at step 100).
RUNGS = {
    "float32": (1.0, 6.500),
    "tf32": (0.4, 6.501),
    "autocast": (0.35, 6.502),
    "compiled_blocks": (0.2, 6.502),
    "flash_attention": (0.18, 6.503),
    "fused_loss": (0.175, 6.503),
    "bf16_weights": (0.15, 6.520),
    "graph": (0.1, 6.520),
}


def ladder(build: Builder, machine: dict, batches: dict, context=1024, rungs=tuple(RUNGS)):
    """Rows of the ladder, whose rungs are train steps that each add one optimization.

    batches: size -> batch sizes; only the first batch size has rows for the first four rungs.
    """
    rows = []
    for size, several in batches.items():
        for number, batch in enumerate(several):
            parameters, together = SIZES[size][0], build.next_pass()
            flops = 6 * parameters * batch * context
            for rung in rungs[4 * bool(number) :]:
                ms = RUNGS[rung][0] * flops / machine["rates"]["float32"] / 1e9 / 0.8
                rows.append(
                    {
                        **{"size": size, "context_length": context, "batch": batch},
                        **{"implementation": rung, "phase": "train_step"},
                        **build.timed(ms, together, again=rung == rungs[0]),
                        **{"parameters": parameters, "tokens": batch * context, "flops": flops},
                        "peak_mib": parameters * (8 if "bf16" in rung else 16) / 2**20,
                        "pool_mib": 1024.0 if rung == "graph" else None,
                        **{"max_error": 1e-3, "error_bound": 1e-2},
                    }
                )
    return pd.DataFrame(rows)


def ladder_loss(sizes, rungs=tuple(RUNGS)) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **{"size": size, "context_length": 128, "batch": 2, "implementation": rung},
            **{"phase": "train_step", "status": "ok", "reason": None},
            **{"step": step, "loss": RUNGS[rung][1] + 2 - step / 50},
        }
        for size in sizes
        for rung in rungs
        for step in (1, 10, 100)
    )


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
        activations *= 0.55 if half else 1
        copies = mib / 2 if half else 0.0
        row = {
            "size": size,
            "context_length": context,
            "batch": batch,
            "dtype": dtype,
            "implementation": "eager",
            "phase": phase,
        }
        predicted = mib * (4 if train else 1) + activations + copies
        row |= {
            "predicted_mib": predicted,
            "parameters_mib": mib,
            "weight_copies_mib": copies,
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
