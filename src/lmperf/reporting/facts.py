"""machine.json as the report reads it: a fact of the wrong type counts as not recorded."""

from __future__ import annotations

import math
from typing import Any

from lmperf.reporting.foreign import deep, taken

PRESETS = ("cpu", "gpu")
TEXTS = (
    *("kind", "device", "driver", "cuda", "torch", "triton", "python", "os", "cpu_model"),
    *("matmul_precision", "lmperf", "commit", "measured_at"),
)
NUMBERS = (
    *("multiprocessors", "device_memory_gib", "clock_sm_mhz", "clock_memory_mhz"),
    *("power_limit_w", "cores", "threads", "memory_gib"),
)
FLAGS = ("dirty", "tf32_matmul", "tf32_cudnn")
MAPPINGS = ("peers", "implementations")
MOST = 1e15


def facts_of(content: Any) -> dict:
    """The content of machine.json with ``preset`` (if valid) and ``environments`` (name -> facts).

    Facts that this project knows have their declared type or are left out; other facts may be
    anything that JSON can hold.
    """
    content = deep(taken, content) if isinstance(content, dict) else {}
    found = content.get("environments")
    found = found.items() if isinstance(found, dict) else ()
    content["environments"] = {name: _of(facts) for name, facts in found if isinstance(facts, dict)}
    if content.get("preset") not in PRESETS:
        content.pop("preset", None)
    return content


def _of(facts: dict) -> dict:
    return {key: value for key, value in facts.items() if _has_its_type(key, value)}


def _has_its_type(key: str, value: Any) -> bool:
    if value is None:
        return True
    if key in TEXTS:
        return isinstance(value, str)
    if key in NUMBERS:
        return _is_number(value)
    if key in FLAGS:
        return isinstance(value, bool)
    if key in MAPPINGS:
        return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    return not isinstance(value, int | float) or isinstance(value, bool) or _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MOST and math.isfinite(value)
