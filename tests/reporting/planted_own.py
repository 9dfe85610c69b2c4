"""Planted evidence of someone who brought a model, a train step, an attention and a strategy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import planted
import planted_ranks as ranks
from planted_steps import AUTOCAST, rung, sdpa, step

from lmperf.reporting.evidence import Evidence

MODEL, STEP, ATTENTION, LRPE, DDP = "my_model", "my_step", "my_attention", "my_lrpe", "my_ddp"
STEMS = {
    MODEL: ("end_to_end", "memory", "profiles", "warmup"),
    STEP: ("end_to_end",),
    ATTENTION: ("attention", "flash_attention"),
    LRPE: ("lrpe",),
    DDP: ("distributed", "distributed_overlap"),
}
KERNELS = {"nvjet_tst": 1.0, "elementwise_kernel": 0.9, "Memcpy DtoD": 0.4}
WITHHELD = 6.123  # ms of a row whose dQ is wrong, which no page may show


def steps() -> Iterator[dict[str, str]]:
    """A model that is slower than lmperf's, and a step that crashes."""
    for size, factor in (("0.13B", 1), ("0.97B", 8)):
        for n, name in enumerate(("float32", "autocast", "compiled_blocks", "graph")):
            yield rung(name, factor * (20.0 - 2 * n), size)
        yield sdpa(factor * 15.0, size)
        yield step(size, "float32", MODEL, factor * 30.0)
        yield step(size, AUTOCAST, MODEL, factor * 21.0)
        yield step(size, AUTOCAST, STEP, None, status="crash", reason="RuntimeError: no (s.py:12)")


def warmup() -> Iterator[dict[str, str]]:
    """First steps that are three times as long with the model brought, twice with lmperf's."""
    for (name, ms), n in itertools.product({"eager": 200, MODEL: 300}.items(), range(1, 16)):
        cell = {"size": "0.13B", "context_length": 512, "batch": 4, "dtype": "float32"}
        parts = {"forward_ms": ms - 70, "backward_ms": 50, "optimizer_ms": 20}
        parts = parts if n == 1 else parts | {"forward_ms": 30}
        known = {"phase": "train_step", "step": n, "step_ms": sum(parts.values())}
        yield planted.row("warmup", implementation=name, **cell | known | parts)


def plain_attention() -> Iterator[dict[str, str]]:
    """An attention whose memory grows with the length, beside plain ones."""
    times = {"eager": (9.0, 2), "compiled": (5.0, 2), ATTENTION: (3.0, 1)}
    for (name, (ms, power)), length, phase, dtype in itertools.product(
        times.items(), (1024, 4096), ("forward", "backward"), ("float32", "bfloat16")
    ):
        cell = {"batch": 8, "seq_len": length, "d_head": 64, "dtype": dtype, "causal": False}
        known = {"peak_mib": 100 * (length / 1024) ** power, "resident_mib": 8, "saved_mib": 50}
        known |= {"phase": phase, "flops": 1e9, "bytes": 1e8, "host_ms": 0.1}
        ms = ms * length / (1024 if dtype == "float32" else 2048)
        yield planted.row("attention", ms, implementation=name, **cell | known)


def memory() -> Iterator[dict[str, str]]:
    for dtype, (name, mib) in itertools.product(
        ("float32", AUTOCAST), {"eager": 9000, MODEL: 9900}.items()
    ):
        cell = {"size": "0.13B", "context_length": 512, "batch": 4, "dtype": dtype}
        known = {"phase": "train_step", "peak_mib": mib - 900 * (dtype == AUTOCAST)}
        yield planted.row("memory", implementation=name, **cell | known)


def profiles() -> Iterator[dict[str, str]]:
    for (dtype, ms), (kernel, share) in itertools.product(
        {"float32": 200, AUTOCAST: 40}.items(), KERNELS.items()
    ):
        cell = {"size": "0.97B", "context_length": 512, "batch": 4, "dtype": dtype}
        about = {"table": "kernel", "name": kernel, "implementation": MODEL, "instances": 10}
        known = {"phase": "train_step", "total_ms": ms * share, "wall_ms": 3 * ms}
        yield planted.row("profiles", **cell | about | known)


def attention(dtype: str = "bfloat16", **failed) -> Iterator[dict[str, str]]:
    """An attention beside lmperf's and two others. failed: columns of its causal rows."""
    for causal, length, phase in itertools.product(
        (True, False), (1024, 4096), ("forward", "backward")
    ):
        cell = {"batch": 4, "heads": 16, "seq_len": length, "d_head": 128, "dtype": dtype}
        cell |= {"causal": causal, "cuda_graph": False, "phase": phase, "flops": 1e12}
        times = {"triton": 3.0, "sdpa_cudnn": 2.0, "eager": 9.0}
        times[ATTENTION] = WITHHELD if failed and causal else 5.0
        for name, ms in times.items():
            known = {"max_error": 1e-3, "error_bound": 1e-2, "bytes": 1e9, "peak_mib": 100.0}
            known |= failed if name == ATTENTION and causal else {}
            ms = ms * length / 1024
            yield planted.row("flash_attention", ms, implementation=name, **cell | known)


def wrong_dq(**values) -> Iterator[dict[str, str]]:
    reason = "dq differs from the float64 reference"
    failed = {"status": "failed_check", "max_error": 1.2, "error_bound": 0.02, "reason": reason}
    return attention(**failed | values)


def lrpe() -> Iterator[dict[str, str]]:
    times = {"copy": 1.0, "eager": 10.0, "compiled": 4.0, "triton": 2.5, LRPE: 5.0}
    for (name, ms), phase in itertools.product(times.items(), ("forward", "backward")):
        cell = {"batch": 12, "heads": 12, "shape": "32768", "d_head": 128, "dtype": "float32"}
        known = {"bytes": 1.8e9, "extra_tokens": 0, "phase": phase}
        yield planted.row("lrpe", ms, implementation=name, **cell | known)


def strategies() -> Iterator[dict[str, str]]:
    times = {"one_rank": 100, DDP: 64, "ddp": 62, "overlapped": 60, "fsdp2": 50}
    yield from (ranks.step(name, ms) for name, ms in times.items())
    yield ranks.profiled(DDP, 66, hidden=0.4)


def evidence(*rows: dict[str, str], facts: dict = ranks.TWO_H200, **more) -> Evidence:
    """Evidence of an environment in which the custom implementations were configured."""
    entries = {
        f"{stem}.{name}": {"entry": f"student:{name}"} for name, of in STEMS.items() for stem in of
    }
    return planted.evidence(*rows, facts=facts | {"implementations": entries}, **more)


def everything() -> list[dict[str, str]]:
    return [*steps(), *memory(), *profiles(), *wrong_dq(), *lrpe(), *strategies()]
