"""Memory of a rank: measured beside its closed form, and the peaks that tables show (D2, D5)."""

from __future__ import annotations

from collections import namedtuple
from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.distributed.rank_footprint import COMPONENTS, predicted_bytes
from lmperf.names import implementation_words
from lmperf.reporting.columns import Quantity, number
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.frames import having, matching, required, shared_value
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import GIB, MIB, MIB_IN_GIB, Count, NotMeasured
from lmperf.transformer.sizes import SHORT, ModelSize

MEMORY = "distributed_memory"
CELL = ["size", "context_length", "batch", "ranks", "dtype"]
LINE = [*CELL, "implementation"]
PARTS = (*COMPONENTS, "total")
# At the update a weight, its gradient and two moments are alive, in float32.
BYTES_AT_UPDATE = 16
CLOSE = 0.05  # a predicted peak this near to the measured one agrees with it
RESERVED = 0.08  # share of a GPU's memory for driver, libraries and gaps
MOST_GPUS = 64
MoreOfDdp = namedtuple("MoreOfDdp", "third second batch buckets")
LARGEST = "12.8B"  # of the course


class RanksMemory(Section):
    """The memory run (D5), and peaks of the steps in the cell of the first table.

    Sentences are about its smallest batch, unless another one is given.
    """

    largest, most_gpus = LARGEST, MOST_GPUS

    @property
    def several(self) -> Section:
        """The section of the steps."""
        return self.of("distributed")

    @cached_property
    def every(self) -> Rows:
        """The rows of the memory run with `predicted_<component>_mib`, and `off`: by which fraction
        the measured sum exceeds the predicted one. NaN for a user's strategy."""
        rows = self.evidence.rows(MEMORY)
        device = self.evidence.environment.get("kind") or "cpu"
        predictions = [_predicted(row, device) for row in rows.to_dict("records")]
        parts = {
            f"predicted_{part}_mib": [
                prediction.get(part, np.nan) / MIB for prediction in predictions
            ]
            for part in PARTS
        }
        off = rows["total_mib"] / parts["predicted_total_mib"] - 1
        return self.rows(MEMORY, rows.assign(**parts, off=off))

    @property
    def components(self) -> list[Quantity]:
        """Each component and their sum: predicted / measured."""
        return [number(f"predicted_{n}_mib", n, unit="MiB", second=f"{n}_mib") for n in PARTS]

    @property
    def close(self) -> Count:
        """How many of the predicted peaks agree with the measured ones."""
        peaks = self.every.valid.query("moment == 'peak' and off.notna()")
        return required(peaks, "no predicted peak").count(f"-{CLOSE} <= off <= {CLOSE}")

    @property
    def far(self) -> list[str]:
        """The names of the strategies whose predicted peaks do not agree with the measured ones."""
        rows = self.every.valid.query(f"moment == 'peak' and abs(off) > {CLOSE}").frame
        return [*map(implementation_words, rows["implementation"].unique())]

    def peak(self, name: str, batch: int | None = None) -> float:
        """GiB of a rank at the peak of a step."""
        rows = self.several.strategies(name).valid.frame
        return float(shared_value(having(rows, batch=batch or self.several.few)["peak"]))

    @property
    def more_of_ddp(self) -> MoreOfDdp:
        """GiB that a rank of DistributedDataParallel needs more than one of hooks: in the third
        step of the eager one, and at most in the second step of the first table, at which batch.
        buckets: GiB of its buckets of gradients."""
        several = self.several
        ddp, hooks = (
            self.moment(name, "peak")["total_mib"] for name in (several.ddp, several.hooks)
        )
        second = [
            having(several.strategies(name + several.suffix).valid.frame, ranks=several.ranks)
            for name in (several.ddp, several.hooks)
        ]
        more = second[0].set_index("batch")["peak_gib"] - second[1].set_index("batch")["peak_gib"]
        more = required(more.dropna(), "no peak of a second step")
        buckets = self.moment(several.ddp, "before_step")["gradients_mib"] / MIB_IN_GIB
        return MoreOfDdp((ddp - hooks) / MIB_IN_GIB, more.max(), int(more.idxmax()), buckets)

    def moment(self, name: str, moment: str) -> pd.Series:
        """The memory of an eager strategy at a moment."""
        where = {"implementation": name, "batch": self.several.few, "moment": moment}
        return self.several.within(self.every, **where).one

    @property
    def sequences(self) -> int:
        """Sequences of each GPU at the smallest batch of the first table."""
        return max(1, self.several.few // self.several.ranks)

    def gpus_needed(self, name: str) -> float:
        """The least number of GPUs for the course's largest model, with `sequences` on each."""
        memory = self.evidence.environment.get("device_memory_gib")
        if not memory or abs(self.moment(name, "peak")["off"]) > CLOSE:
            raise NotMeasured("the closed form does not hold here")
        cell = self.several.cell
        setting = int(cell["context_length"]), self.sequences, cell["dtype"]
        return least_gpus(name, SHORT[LARGEST], *setting, memory) or np.inf


def matched(rows: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """The valid row of each line's cell and strategy, indexed like the lines; else NaN."""
    return matching(lines, rows[rows["state"].isna()], LINE)


def peaks_gib(evidence: Evidence, steps: pd.DataFrame) -> pd.Series:
    """The peak of a rank in each step: the larger one of the timed step and of the memory run.

    The peak of a timed step of FSDP2 is left out: its process does not count the gradients of the
    step before. So is one below what the update needs, however sharded. NaN without either.
    """
    least = BYTES_AT_UPDATE * steps["parameters"] / steps["ranks"] / GIB
    wrong = steps["implementation"].str.startswith("fsdp2") | (steps["peak_gib"] < least)
    timed = steps["peak_gib"].mask(wrong)
    apart = matched(having(evidence.rows(MEMORY), moment="peak"), steps)["total_mib"]
    return np.fmax(timed, apart.astype(float) / MIB_IN_GIB)


def _predicted(row: dict, device: str) -> dict[str, float]:
    """Bytes by component at the moment of a row; empty for what has no closed form."""
    size, moment = SHORT.get(row["size"]), row["moment"]
    is_ours = not isinstance(row.get("model"), str)
    if size is None or not isinstance(moment, str) or not is_ours:
        return {}
    cell = (*(int(row[name]) for name in LINE[1:4]), row["dtype"], device)
    try:
        return predicted_bytes(row["implementation"], size, *cell)[moment]
    except ValueError:  # a user's strategy
        return {}


def least_gpus(
    name: str, size: ModelSize, context: int, batch: int, dtype: str, memory_gib: float
) -> int | None:
    """The least number of GPUs on which a strategy trains a model; None: on none up to MOST_GPUS.

    batch: sequences of each GPU.
    """
    usable = (1 - RESERVED) * memory_gib * GIB
    for gpus in range(1, MOST_GPUS + 1):
        moments = predicted_bytes(name, size, context, gpus * batch, gpus, dtype)
        if moments["peak"]["total"] <= usable:
            return gpus
    return None
