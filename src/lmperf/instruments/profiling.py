"""Profiles one run of a phase: times of its kernels and of the parts of attention.

On CUDA these are the kernels, copies and memsets that CUPTI recorded on the device; on a CPU the
self time of operators. Times are read from the Chrome trace that the profiler exports, so that the
report and the trace agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from lmperf.benchmark import Case
from lmperf.measuring.device_time import ON_DEVICE, Event, complete_events, read_trace
from lmperf.names import size_words

SCORES, SOFTMAX, VALUES = "scores", "softmax", "values"
RANGES = {name: f"attention: {name}" for name in (SCORES, SOFTMAX, VALUES)}


def ranged_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """The model's plain attention with its three parts in named ranges (also under nsys).

    q, k, v: [batch, heads, seq_len, d_head]; returns the shape and dtype of q.
    """
    with record_function(RANGES[SCORES]):
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
    with record_function(RANGES[SOFTMAX]):
        if causal:
            query = torch.arange(q.shape[-2], device=q.device)
            key = torch.arange(k.shape[-2], device=q.device)
            weights = weights.masked_fill(key[None, :] > query[:, None], float("-inf"))
        at_least_float32 = torch.promote_types(weights.dtype, torch.float32)
        weights = torch.softmax(weights, dim=-1, dtype=at_least_float32).to(v.dtype)
    with record_function(RANGES[VALUES]):
        return weights @ v


def trace_path(folder: Path | None, case: Case, *phase: str) -> Path | None:
    """Where to store the trace of a case in a folder; None without a folder: none is kept."""
    if folder is None:
        return None
    values = [size_words(value) if axis == "size" else str(value) for axis, value in case.cell]
    return folder / f"{'-'.join([*values, case.implementation, *phase])}.json.gz"


def events_of(run: Callable[[], object], device: str, kept: Path | None) -> list[Event]:
    """The complete events of one run under the profiler, of host and device.

    kept: where to store the trace (gzip); None: nowhere.
    """
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with profile(activities=activities) as profiler:
        run()
        if device == "cuda":
            torch.cuda.synchronize()
    return complete_events(read_trace(profiler, kept))


def durations(events: Iterable[Event], device: str) -> dict[str, list[float]]:
    """Microseconds of each call, by name: kernels on CUDA, self times of operators on a CPU."""
    microseconds_of: dict[str, list[float]] = {}
    if device == "cuda":
        for event in events:
            if event.get("cat") in ON_DEVICE:
                microseconds_of.setdefault(event["name"], []).append(float(event["dur"]))
        return microseconds_of
    for event, microseconds in _self_times([e for e in events if e.get("cat") == "cpu_op"]):
        if event["name"].startswith("aten::"):
            microseconds_of.setdefault(event["name"], []).append(microseconds)
    return microseconds_of


def _self_times(events: list[Event]) -> list[tuple[Event, float]]:
    """Each event with its self time: its duration without the events nested in it."""
    self_time = {id(event): float(event["dur"]) for event in events}
    by_thread: dict[Any, list[Event]] = {}
    for event in events:
        by_thread.setdefault(event["tid"], []).append(event)
    for thread in by_thread.values():
        open_events: list[Event] = []
        for event in sorted(thread, key=lambda e: (e["ts"], -e["dur"])):
            while open_events and _end(open_events[-1]) <= event["ts"]:
                open_events.pop()
            if open_events:
                self_time[id(open_events[-1])] -= float(event["dur"])
            open_events.append(event)
    return [(event, max(0.0, self_time[id(event)])) for event in events]


def _end(event: Event) -> float:
    return event["ts"] + event["dur"]


def range_times(events: list[Event], device: str) -> dict[str, float]:
    """Microseconds in each of attention's three ranges: kernel time, on a CPU wall time."""
    category = "gpu_user_annotation" if device == "cuda" else "user_annotation"
    microseconds_of = dict.fromkeys(RANGES, 0.0)
    kernels = sorted(
        ((e["ts"], float(e["dur"])) for e in events if e.get("cat") in ON_DEVICE),
    )
    for name, label in RANGES.items():
        for span in (e for e in events if e.get("cat") == category and e["name"] == label):
            if device != "cuda":
                microseconds_of[name] += float(span["dur"])
                continue
            inside = (d for ts, d in kernels if span["ts"] <= ts < _end(span))
            microseconds_of[name] += sum(inside)
    return microseconds_of
