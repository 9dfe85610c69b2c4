"""Make rows of memory over time, from a model of a step with a few allocations per layer."""

from __future__ import annotations

import itertools

import pandas as pd

from synthetic.builder import SIZES

CATEGORIES = ("parameters", "optimizer", "inputs", "gradients", "activations", "temporary")
MIB = 2**20
EVENTS_A_LAYER = 10
INPUTS_MIB = 0.125
ENTERED = 4  # points of the curve before the call, while existing tensors are added one by one


def memory_timeline(sizes, context: int, dtypes, batch: int = 4) -> pd.DataFrame:
    """Rows of each call: memory curve, phases, largest tensors, categories, residual stream."""
    rows = []
    for size, dtype, phase in itertools.product(sizes, dtypes, ("forward", "train_step")):
        cell = {"size": size, "context_length": context, "batch": batch, "dtype": dtype}
        cell |= {"implementation": "eager", "phase": phase, "status": "ok", "reason": None}
        rows += [{**cell, **row} for row in _call(size, context, batch, dtype, phase)]
    return pd.DataFrame(rows)


def _call(size: str, context: int, batch: int, dtype: str, phase: str) -> list[dict]:
    parameters, width, layers = SIZES[size]
    mib = parameters * 4 / MIB
    layer = batch * context * width * 34 * (4 if dtype == "float32" else 3) / MIB
    stream = batch * context * width * 4 / MIB
    train = phase == "train_step"
    curve = _training(mib, layer, layers) if train else _inference(mib, stream, layers)
    events = layers * EVENTS_A_LAYER
    starts = {"forward": 0, "backward": events, "optimizer": 2 * events, "end": 2 * events}
    starts = starts if train else {"inference": 0, "end": events}
    top = max(curve, key=lambda point: sum(point[1].values()))[1]
    peak = sum(top.values())
    rows = [
        {"table": "curve", "position": at, **{f"{name}_mib": v for name, v in level.items()}}
        for at, level in curve
    ]
    rows += [
        {"table": "phase", "position": ENTERED + at, "name": name} for name, at in starts.items()
    ]
    made = {"name": "activations", "made_in": "forward"} if train else {"name": "temporary"}
    made |= {"size_mib": stream, "tensor": f"float32[{batch}, {context}, {width}]"}
    made |= {"frame": "models/transformer.py:1 forward"}
    before = {"name": "parameters", "size_mib": mib / layers, "tensor": f"float32[{width}]"}
    blocks = (made, made, before)
    rows += [{"table": "block", "position": n, **b} for n, b in enumerate(blocks, start=1)]
    rows += [
        {"table": "category", "position": n, "name": name, "size_mib": v, "predicted_mib": v}
        for n, (name, v) in enumerate(top.items(), start=1)
    ]
    rows.append(
        {
            "table": "stream",
            "position": 1,
            "name": "residual stream",
            "tensor": made["tensor"],
            "size_mib": stream,
            "predicted_mib": stream,
        }
    )
    return [{**row, "recorded_mib": peak, "peak_mib": peak * 1.02} for row in rows]


def _level(**mib: float) -> dict[str, float]:
    return {name: mib.get(name, 0.0) for name in CATEGORIES}


def _inference(mib: float, stream: float, layers: int) -> list[tuple[int, dict]]:
    points = [(n, _level(parameters=mib * n / ENTERED)) for n in range(1, ENTERED)]
    there = {"parameters": mib, "inputs": INPUTS_MIB}
    for event in range(layers * EVENTS_A_LAYER):
        level = _level(**there, temporary=stream * (1 + event % 3))
        points.append((ENTERED + event, level))
    return points


def _training(mib: float, layer: float, layers: int) -> list[tuple[int, dict]]:
    points = [(n, _level(parameters=mib * n / ENTERED)) for n in range(1, ENTERED)]
    there = {"parameters": mib, "optimizer": 2 * mib, "inputs": INPUTS_MIB}
    events = layers * EVENTS_A_LAYER
    for event in range(1, events + 1):
        points.append(
            (ENTERED + event, _level(**there, activations=layer * layers * event / events))
        )
    for event in range(1, events + 1):
        left = 1 - event / events
        level = _level(**there, activations=layer * layers * left, gradients=mib * (1 - left))
        points.append((ENTERED + events + event, level))
    return points
