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
    if phase == "train_step" and (context >= 1024 or not machine["device"]):
        timing |= build.sustained(max(host, work), bool(machine["device"]))
    timing["compile_s"] = {"compiled": 20.0 + layers, "compiled_blocks": 6.0}.get(name)
    return {
        **row,
        **timing,
        **({"host_ms": host} if machine["device"] else {}),
        "parameters": parameters,
        "tokens": tokens,
        "flops": flops,
        "peak_mib": peak,
        "resident_mib": parameters * 12 / 2**20,
        "max_error": 1e-4 if name != "eager" else None,
        "error_bound": 1e-3 if name != "eager" else None,
    }


# Rung of the ladder -> loss at step 100.
LOSSES = {
    "float32": 6.500,
    "tf32": 6.501,
    "autocast": 6.502,
    "compiled_blocks": 6.502,
    "flash_attention": 6.503,
    "fused_loss": 6.503,
    "fused_blocks": 6.503,
    "bf16_weights": 6.520,
    "graph": 6.520,
}
# (dtype, implementation) of further rungs -> time relative to autocast, compiled by block.
LADDER = {
    ("autocast_bfloat16", "triton_compiled_blocks"): 0.90,
    ("autocast_bfloat16", "fused_loss"): 0.88,
    ("autocast_bfloat16", "fused_blocks"): 0.86,
    ("bfloat16", "fused_blocks"): 0.84,
    ("bfloat16", "graph"): 0.70,
}


def ladder(build: Builder, machine: dict, steps: pd.DataFrame, batches: dict, context=1024):
    """The rows of end to end that the ladder adds to ``steps``, the other rows of end to end.

    batches: size -> batch sizes. Rows of a batch in ``steps`` are timed in turn with its rows.
    """
    rows = []
    for size, several in batches.items():
        for batch in several:
            cell = (steps["size"] == size) & (steps["context_length"] == context)
            beside = steps[cell & (steps["batch"] == batch) & (steps["phase"] == "train_step")]
            together = build.next_pass() if beside.empty else beside["together"].iloc[0]
            parameters = SIZES[size][0]
            flops = 6 * parameters * batch * context
            base_ms = 1.1 * flops / machine["rates"]["bfloat16"] / 1e9 / 0.6
            for (dtype, name), factor in LADDER.items():
                if name in ("graph", "triton_compiled_blocks") and not machine["device"]:
                    continue
                ms = factor * base_ms
                peak = parameters * (8 if dtype == "bfloat16" else 16) / 2**20
                rows.append(
                    {
                        **{"size": size, "context_length": context, "batch": batch},
                        **{"dtype": dtype, "implementation": name, "phase": "train_step"},
                        **build.timed(ms, together),
                        **build.sustained(ms, bool(machine["device"])),
                        **({"host_ms": 0.3 * ms} if machine["device"] else {}),
                        **{"parameters": parameters, "tokens": batch * context, "flops": flops},
                        **{"compile_s": 6.0, "peak_mib": peak, "resident_mib": 0.75 * peak},
                        "pool_mib": 1024.0 if name == "graph" else None,
                        **{"max_error": 1e-3, "error_bound": 1e-2},
                    }
                )
    return pd.concat([steps, pd.DataFrame(rows)], ignore_index=True)


def ladder_loss(sizes, rungs=tuple(LOSSES)) -> pd.DataFrame:
    return pd.DataFrame(
        {
            **{"size": size, "context_length": 128, "batch": 2, "implementation": rung},
            **{"phase": "train_step", "status": "ok", "reason": None},
            **{"step": step, "loss": LOSSES[rung] + 2 - step / 50},
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
