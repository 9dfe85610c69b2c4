"""How many GPUs a model needs, by strategy, from the closed forms of `lmperf.distributed.memory`.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from lmperf.devices import MEMORY_GIB
from lmperf.distributed.memory import peak_bytes
from lmperf.dtypes import DTYPES
from lmperf.errors import UserError, shown
from lmperf.transformer.sizes import ModelSize

# Strategy in words -> the implementation or ZeRO stage whose closed form counts.
STRATEGIES: Mapping[str, str] = {
    "data parallel": "overlapped",
    "ZeRO-1": "sharded_optimizer",
    "ZeRO-2": "zero_2",
    "ZeRO-3, fully sharded": "fully_sharded",
}
# Dtypes for which there is a closed form: those with float32 weights.
FORMS = tuple(name for name, dtype in DTYPES.items() if dtype.storage == "float32")
# Share of a device's memory that a step cannot use: the driver's, the CUDA context, NCCL's buffers,
# and gaps between tensors. The largest step measured on an H200 (E8) left 8 % of 141 GiB.
RESERVED = 0.08
# The largest number of GPUs that is tried.
MOST_GPUS = 2**14


@dataclass(frozen=True)
class Setting:
    """A model and how it is trained; `batch` counts the sequences of each GPU."""

    size: ModelSize
    context: int
    batch: int
    dtype: str


@dataclass(frozen=True)
class Need:
    """What a step needs under a strategy.

    Attributes:
        strategy: a key of `STRATEGIES`.
        checkpointed: whether each block keeps its input only and is run again.
        parts: component -> bytes per GPU at the peak of a step.
    """

    strategy: str
    checkpointed: bool
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def fits(self, memory: float) -> bool:
        """Whether the step fits into a device with this memory, in bytes."""
        return self.total <= (1 - RESERVED) * memory


@cache
def need(setting: Setting, strategy: str, checkpointed: bool, gpus: int) -> Need:
    """Return what a step on so many GPUs needs.

    Raises:
        KeyError: the strategy is unknown.
        ValueError: the dtype has no closed form.
    """
    cell = setting.size, setting.context, setting.batch, gpus, setting.dtype
    return Need(strategy, checkpointed, peak_bytes(STRATEGIES[strategy], *cell, checkpointed))


def needs(setting: Setting, gpus: int, checkpointed: Collection[bool] = (False, True)):
    """Return the needs of every strategy on so many GPUs, as a list of `Need`."""
    return [need(setting, name, one, gpus) for name in STRATEGIES for one in checkpointed]


def least_gpus(setting: Setting, strategy: str, checkpointed: bool, memory: float) -> int | None:
    """Return the smallest number of GPUs on which a step fits; None if it is over `MOST_GPUS`.

    What a GPU needs does not grow with their number, since each has its own sequences.

    memory: of a GPU, in bytes.
    """

    def fits(gpus: int) -> bool:
        return need(setting, strategy, checkpointed, gpus).fits(memory)

    if not fits(MOST_GPUS):
        return None
    least, most = 1, MOST_GPUS
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if fits(middle) else (middle + 1, most)
    return least


def memory_gib(text: str) -> float:
    """Return the memory of a device in GiB, from its name or from a number of GiB.

    A part of a name counts if all devices that have it have the same memory.

    Raises:
        UserError: no device has this name, or several with other memory, or the number is not
            positive.
    """
    try:
        number = float(text)
    except ValueError:
        return _memory_of_name(text)
    if not 0 < number < float("inf"):
        raise UserError(f"{text} GiB of memory: write a positive number")
    return number


def _memory_of_name(text: str) -> float:
    wanted = text.lower().removeprefix("nvidia ")
    exact = [name for name in MEMORY_GIB if name.lower() == wanted]
    found = exact or [name for name in MEMORY_GIB if wanted in name.lower()]
    if not found:
        raise UserError(
            f"unknown device {shown(text)}; write its memory in GiB, or one of:"
            f" {', '.join(MEMORY_GIB)}"
        )
    if len({MEMORY_GIB[name] for name in found}) > 1:
        raise UserError(f"device {shown(text)} is ambiguous: write {' or '.join(found)}")
    return float(MEMORY_GIB[found[0]])
