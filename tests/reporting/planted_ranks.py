"""Planted evidence of several ranks: steps, their ledger and memory, in one cell unless named."""

from __future__ import annotations

import planted

TWO_H200 = planted.H200 | {"devices": 2, "links": {"0-1": "NV18"}, "torch": "2.11.0+cu130"}
TWO_H200 |= {"clock_sm_mhz": 1980}
CELL = {
    "size": "3.4B",
    "context_length": 512,
    "batch": 4,
    "ranks": 2,
    "dtype": "autocast_bfloat16",
}
PARAMETERS = 3_406_809_600


def step(name: str, ms: float, **values) -> dict[str, str]:
    """A timed step; one of a single rank by its name."""
    ranks = {"ranks": 1} if name.startswith("one_rank") else {}
    known = {"parameters": PARAMETERS, "peak_mib": 50 * 1024, "host_ms": 1}
    cell = CELL | ranks | {"tokens": 512 * values.get("batch", 4), "error_bound": 1.0}
    return planted.row(
        "distributed", ms=ms, implementation=name, max_error=0.1, **cell | known | values
    )


def profiled(name: str, step_ms: float, hidden: float = 0.5, **values) -> dict[str, str]:
    """A row of the ledger with 50 ms of communication and 80 ms of computation."""
    numbers = {"communication": 50, "compute": 80, "hidden": 50 * hidden}
    numbers |= {"step": step_ms, "exposed": 50 * (1 - hidden)}
    made = {f"{of}{end}_ms": ms for of, ms in numbers.items() for end in ("", "_low", "_high")}
    made |= {f"hidden_share{end}": hidden for end in ("", "_low", "_high")}
    row = {"implementation": name, "steps": 9, "calls": 195}
    return planted.row("distributed_overlap", **CELL | row | made | values)


def memory(name: str, moment: str, gib: float, **values) -> dict[str, str]:
    """The memory of a rank at a moment."""
    row = {"implementation": name, "moment": moment, "total_mib": 1024 * gib}
    return planted.row("distributed_memory", **CELL | row | values)


def collective(operation: str, size: float, ms: float, **values) -> dict[str, str]:
    """A collective of torch.distributed in float32 over two ranks."""
    row = {"operation": operation, "dtype": "float32", "ranks": 2, "implementation": "library"}
    row |= {"message_bytes": int(size), "error_wrong_elements": 0, "phase": "forward"}
    return planted.row("collectives", ms=ms, **row | values)


def evidence(*rows: dict[str, str], **more) -> planted.Evidence:
    return planted.evidence(*rows, **{"facts": TWO_H200} | more)
