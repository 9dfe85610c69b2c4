"""A made-up machine whose rows differ in every way that a report tells apart.

Its kernels are slower than others, steps wait or fail, rows are loaded, capped, stale or withheld:
what the published machines hardly have. `python tests/reporting/synthetic.py` writes its pages to
`golden/` again, as text, since ruff formats code in Markdown; read the difference.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import planted
import planted_ranks as ranks
from planted_steps import AUTOCAST, loss, rung, step

from lmperf.reporting.evidence import Evidence
from lmperf.reporting.pages import pages_of
from lmperf.transformer.rungs import RUNGS

GOLDEN = Path(__file__).parent / "golden"
BOTH = ("forward", "backward")
SUMS = {"float32 + float32": 10.000134, "float16 + float16": 9.953125, "float32 + float16": 10.0021}
SUMS |= {"bfloat16 + bfloat16": 4.0, "float32 + bfloat16": 10.009765625}
DTYPES = {"attention.qkv.weight": "parameter", "attention_norm": "output", "loss": "loss"}
KERNELS = {"matmul": "nvjet_tst", "elementwise": "elementwise_kernel", "copy": "Memcpy DtoD"}


def ceilings():
    for dtype, tflops in (("float32", 50), ("tf32", 300), ("bfloat16", 700), ("float16", 650)):
        for load, share in (("burst", 1.0), ("sustained", 0.8)):
            rate = {"tflops": tflops * share, "flops": 1e9 * tflops * share, "bytes": 0}
            about = {"operation": "matmul", "dtype": dtype, "shape": "8192x8192x8192", "load": load}
            yield planted.row("ceilings", 1.0, power_w=690, clock_mhz=1500, **about, **rate)
    rate = {"bandwidth_gbps": 4000, "flops": 0, "bytes": 4e9, "load": "burst"}
    yield planted.row("ceilings", 1.0, operation="copy", dtype="float32", **rate)


def attention():
    for (n, length), phase in itertools.product(enumerate((1024, 4096, 16384)), BOTH):
        cell = {"batch": 8, "seq_len": length, "d_head": 64, "dtype": "float32", "causal": False}
        work = {"flops": 32 * length**2 * 64, "bytes": 8 * length * 1024, "saved_mib": 16.0**n}
        for name, ms in (("eager", 16.0**n / 10), ("compiled", 16.0**n / 9)):
            memory = {"resident_mib": 2.0**n, "peak_mib": 2 * 15.0**n * (1 + (phase != "forward"))}
            about = cell | work | memory | {"phase": phase, "implementation": name}
            yield planted.row("attention", ms, **about)
    cell |= {"seq_len": 65536, "requested_mib": 2**17, "free_mib": 2**14}
    known = {"inputs_mib": 100, "free_before_mib": 2**17 + 2**14, "predicted_requested_mib": 2**17}
    yield planted.row("attention_limit", outcome="out of memory", **cell | known)


def flash_attention():
    times = {"triton": 3.0, "sdpa_cudnn": 2.0, "sdpa_flash": 4.0, "eager": 9.0}
    for n, d, (name, ms), phase in itertools.product((1024, 16384), (64, 128), times.items(), BOTH):
        cell = {"batch": 16384 // n, "heads": 2048 // d, "seq_len": n, "d_head": d, "phase": phase}
        cell |= {"dtype": "bfloat16", "causal": True, "cuda_graph": False, "implementation": name}
        state = {"status": "oom"} if (name, n) == ("eager", 16384) else {"host_ms": 0.1}
        state |= {"marks": "capped"} if d == 128 and name == "triton" else {}
        state |= {"gluon": ", ".join(BOTH)} if name == "triton" else {}
        state |= {"max_error": 0.001, "error_bound": 0.01 if name != "sdpa_flash" else 0.0001}
        work = {"flops": 1e12, "bytes": 1e9, "peak_mib": 100 * times[name]}
        time = None if "status" in state else ms * (1 + BOTH.index(phase))
        state |= {"status": "failed_check"} if name == "sdpa_flash" else {}
        yield planted.row("flash_attention", time, **cell | state | work)


def lrpe():
    times = {"copy": 1.0, "eager": 10.0, "compiled": 4.0, "triton": 2.5, "triton_cached": 1.2}
    times["mine"] = 5.0
    for (name, ms), (shape, size), phase in itertools.product(
        times.items(), {"256": 0.01, "32768": 1.0, "32x32x32": 1.1}.items(), BOTH
    ):
        cell = {"batch": 12, "heads": 12, "shape": shape, "d_head": 128, "dtype": "bfloat16"}
        known = {"peak_mib": 100, "host_ms": 0.02, "bytes": 1.8e9 * size, "extra_tokens": 0}
        yield planted.row("lrpe", ms * size, implementation=name, phase=phase, **cell | known)


def steps():
    for size, factor in (("0.13B", 1), ("0.97B", 8)):
        for n, one in enumerate(RUNGS):
            waits = (size == "0.13B" and "graph" not in one.name) or one.name == "tf32"
            times = {"spread": 200 if one.name == "tf32" else 1, "waits": waits}
            times |= {"marks": "loaded"} if one.name == "fused_loss" else {}
            ms = None if (size, one.name) == ("0.97B", "flash_attention") else factor * (20 - n)
            if size == "0.97B" and one.implementation in ("eager", "fused_blocks"):
                times |= {"forward_ms": ms / 4, "backward_ms": ms / 2, "optimizer_ms": ms / 8}
                times |= {"loss_ms": ms / 8} if one.implementation == "eager" else {}
            yield rung(one.name, ms, size, peak_mib=1024.0 * factor + n, **times)
            yield loss(one.name, 2.0 + n / 50, size)
        for name, ms in (("sdpa_compiled_blocks", 15.5), ("sdpa_graph", 14.5)):
            known = {"device_ms": 14.0 * factor, "launches": 600, "peak_mib": 2048.0 * factor}
            waits = size == "0.13B" and "graph" not in name
            yield step(size, AUTOCAST, name, factor * ms, waits=waits, **known)
        for dtype, phase in itertools.product(("float32", AUTOCAST), BOTH):
            yield step(size, dtype, "eager", factor * (3 + len(phase)), phase=phase)
        yield step(size, "float32", "mine", factor * 15.0)
    yield rung("fused_blocks", 200.0, batch=16, tokens=16384)
    for name, ms in (("recompute_all", 10_000), ("keep_attention", 5000)):
        known = {"tokens": 65536, "flops": 4.7e15, "peak_mib": 131_072, "matmul_blocks": 9}
        yield planted.row("leaderboard", ms, implementation=name, parameters=8e9, **known)
    for n in range(1, 16):
        parts = {"forward_ms": 10 + 100 * (n == 1), "backward_ms": 20.0, "optimizer_ms": 5.0}
        known = parts | {"step_ms": sum(parts.values()), "reserved_mib": 100 * (n < 3)}
        yield planted.row("warmup", size="0.13B", step=n, **known)


def memory():
    for dtype, context, phase in itertools.product(
        ("float32", AUTOCAST), (128, 512), ("forward", "train_step")
    ):
        cell = {"size": "0.97B", "context_length": context, "batch": 4, "dtype": dtype}
        mib = 10_000 + 10 * context + 100 * (dtype == AUTOCAST) - 5000 * (phase == "forward")
        parts = {"parameters": 2000, "gradients": 2000, "optimizer": 4000, "activations": context}
        parts = {f"{name}_mib": size for name, size in parts.items()} | {"weight_copies_mib": 900}
        known = {"peak_mib": mib, "predicted_mib": mib * 1.04, "workspace_mib": 32, "phase": phase}
        yield planted.row("memory", implementation="eager", **cell | parts | known)
    for n, name in enumerate(("eager", "checkpoint_1", "checkpoint_2", "nested_4")):
        cell = {"size": "0.97B", "context_length": 2048, "batch": 4, "dtype": AUTOCAST}
        known = {"peak_mib": 20_000 / (n + 1), "implementation": name}
        yield planted.row("checkpointing", 100 + 30 * n, **cell | known)


def profiles():
    times = {("float32", "eager"): 200, (AUTOCAST, "eager"): 40, (AUTOCAST, "compiled_blocks"): 39}
    for (dtype, name), ms in times.items():
        cell = {"size": "0.97B", "context_length": 512, "batch": 4, "dtype": dtype}
        for kernel, share in zip(KERNELS.values(), (1.0, 0.9, 0.4), strict=True):
            about = {"table": "kernel", "name": kernel, "implementation": name, "instances": 10}
            known = {"phase": "train_step", "total_ms": ms * share, "wall_ms": 3 * ms}
            yield planted.row("profiles", **cell | about | known)


def mixed_precision():
    for name, value in SUMS.items():
        about = {"experiment": "accumulation", "subject": name, "exact": 10.0}
        yield planted.row("mixed_precision", value=value, **about)
    for tensor, kind in DTYPES.items():
        about = {"experiment": "dtypes", "subject": "transformer_block", "dtype": "bfloat16"}
        about |= {"tensor": tensor, "kind": kind, "observed_dtype": "bfloat16"}
        yield planted.row("mixed_precision", **about)


def several():
    times = {"one_rank": 100, "flat": 80, "overlapped": 60, "ddp": 62, "fully_sharded": 40}
    yield from (ranks.step(name, ms, error_bound=1.0) for name, ms in times.items())
    yield ranks.profiled("overlapped", 66, hidden=0.4)
    parts = {"parameters_mib": 12996.0, "gradients_mib": 0, "optimizer_mib": 0, "other_mib": 9}
    yield ranks.memory("overlapped", "init", 12.7, **parts)
    yield ranks.memory("fully_sharded", "peak", 27.0)
    for operation, ms in (("copy", 1.0), ("all_reduce", 4.0)):
        yield ranks.collective(operation, 1e9, ms)


def further():
    """Steps in float8, and with a larger vocabulary."""
    for name, ms in {"fp8_graph": 65.0, "fp8_tensorwise": 70.0}.items():
        yield rung(name, ms)
        yield loss(name, 2.0)
    times = {"sdpa_graph": 45.0, "stored_logits_graph": 40.0, "graph": 41.0}
    for name, ms in times.items():
        known = {"size": "0.13B", "bound": "device", "tokens": 16384, "flops": 1e12}
        known |= {
            "device_ms": ms,
            "launches": 100,
            "peak_mib": 1000 * ms - 3000 * (name == "graph"),
        }
        yield planted.row("vocabulary", ms, implementation=name, **known)


def machine() -> Evidence:
    """The evidence of this machine, the same in every process."""
    parts = (ceilings, attention, flash_attention, lrpe, steps, memory, profiles, mixed_precision)
    rows = [row for part in (*parts, several, further) for row in part()]
    rows = [row | {"key": f"{n:016x}"} for n, row in enumerate(rows)]
    again = {}
    for row in [row for row in rows if row["median_ms"] and row["stem"] in ("lrpe", "end_to_end")]:
        slower = {"median_ms": str(float(row["median_ms"]) * 1.05)}
        again.setdefault(row["stem"], []).append(row | slower)
    other = planted.evidence(*ceilings(), *steps(), machine="other", facts=planted.CPU)
    stale = frozenset(row["key"] for row in rows[::25])
    more = {"again": again, "others": [other], "stale": stale, "damaged": {"host": "cut off"}}
    more |= {"faults": ["stale: 4 (attention 4)"], "anyway": "a rented host"}
    return planted.evidence(*rows, facts=ranks.TWO_H200, **more)


def rendered() -> dict[str, str]:
    """Name of a page -> its Markdown."""
    return {name: page.text for name, page in pages_of(machine()).items()}


if __name__ == "__main__":
    for name, text in rendered().items():
        (GOLDEN / f"{name}.txt").write_text(text)
