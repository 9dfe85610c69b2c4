"""Several GPUs: what the sentences of the first page rest on."""

from __future__ import annotations

from functools import cached_property

import pandas as pd

from lmperf.reporting.evidence import Evidence, having, only, parts, some
from lmperf.reporting.gains import Gain, pairs
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import ranks_memory
from lmperf.reporting.sections.distributed import (
    DDP,
    HOOKS,
    SHARDED,
    STATE,
    STEM,
    Distributed,
    one_rank,
    plain,
)
from lmperf.reporting.sections.steps import BETWEEN_GPUS
from lmperf.reporting.words import NotMeasured
from lmperf.transformer.sizes import SHORT

SAME = 0.01  # times, volumes and parts of the memory that are this near are the same


class SeveralGpus(Distributed):
    """Predicates and numbers on the cell of the first table."""

    hooks, ddp, sharded, state = HOOKS, DDP, SHARDED, STATE
    largest = ranks_memory.LARGEST

    # What is fastest.

    def _at(self, batch: int) -> pd.DataFrame:
        """The steps of the first table at a batch on several ranks, the fastest first."""
        rows = having(self.head.sound, batch=batch)
        rows = some(rows[rows["ranks"] > 1], f"no step at batch {batch} holds")
        return rows.sort_values("ms", kind="stable")

    def fastest(self, batch: int) -> pd.Series:
        return self._at(batch).iloc[0]

    @cached_property
    def leader(self) -> str:
        """The strategy that is the fastest at both batches, beyond noise; or nothing."""
        found = {self._leader(batch) for batch in (self.few, self.many)}
        return found.pop() if len(found) == 1 else ""

    def _leader(self, batch: int) -> str:
        (_, best), *others = self._at(batch).iterrows()
        leads = others and all(is_faster(best, other) for _, other in others)
        return plain(best["implementation"]) if leads else ""

    @cached_property
    def over_one_rank(self) -> pd.DataFrame:
        """The steps of the first table that can be compared with that of one rank, with ratios."""
        rows = self.head.frame
        names = rows.loc[rows["ranks"] > 1, "implementation"].unique()
        one = {"implementation": one_rank(self.suffix), "ranks": 1}
        ours = [{"implementation": name, "ranks": self.ranks} for name in names]
        found = pd.concat([pairs(self.evidence, STEM, side, one) for side in ours])
        return found[found.index.isin(rows.index) & found["ratio"].notna()]

    @property
    def is_compared(self) -> bool:
        return not self.over_one_rank.empty

    @property
    def pays(self) -> bool:
        """Whether any strategy is faster than one rank, beyond intervals and noise floors."""
        found = self.over_one_rank
        if found.empty:
            return self._pays_on_other_gpus
        return bool(((found["low"] > 1) & (found["ratio"] > 1 + found["floor"])).any())

    def speed_up(self, batch: int) -> float:
        """How many times as fast as one rank the fastest strategy is, also on other GPUs."""
        alone = having(self.head.sound, batch=batch, ranks=1)
        alone = some(alone, f"no step of one rank at batch {batch}")
        return float(alone["ms"].min() / self.fastest(batch)["ms"])

    @property
    def _pays_on_other_gpus(self) -> bool:
        best = max(self.speed_up(batch) for batch in (self.few, self.many))
        if 1 / (1 + BETWEEN_GPUS) <= best <= 1 + BETWEEN_GPUS:
            raise NotMeasured("other GPUs differ by as much as the step from that of one rank")
        return best > 1

    def step(self, family: str, batch: int) -> pd.Series:
        """The step of a strategy in the cell of the first table."""
        name = family + self.suffix
        return self.head.kept(having(self.head.frame, implementation=name, batch=batch)).one

    def gain(self, batch: int) -> Gain:
        """The speed-up of the fastest strategy over one rank."""
        name = self.fastest(batch)["implementation"]
        rows = self.within(self.steps, implementation=name, batch=batch)
        return rows.over(one_rank(name), ranks=1)

    @property
    def scales(self) -> bool:
        """Whether the largest batch gains more over one rank than the smallest one."""
        if self.many == self.few:
            raise NotMeasured("one batch only")
        if not self.is_compared:
            return self.speed_up(self.many) > (1 + BETWEEN_GPUS) * self.speed_up(self.few)
        return self.gain(self.many) > self.gain(self.few).rows["high"].max()

    # What the profiler says.

    def profiled(self, family: str, batch: int) -> pd.Series:
        """The row of the ledger of a strategy, if it tells of the timed step."""
        name = family + self.suffix
        return self.within(self.ledger, implementation=name, batch=batch, tells=True).one

    def bucket(self, megabytes: int) -> pd.Series:
        """The row of the ledger of buckets of a size, at the smallest batch."""
        name = f"bucket_{megabytes}"
        return self.within(self.ledger, implementation=name, batch=self.few).one

    # Memory of a rank.

    def peak(self, name: str) -> float:
        """GiB of a rank at the peak of a step, at the smallest batch."""
        return float(only(having(self.strategies(name).valid.frame, batch=self.few)["peak"]))

    def moment(self, name: str, moment: str) -> pd.Series:
        """The memory of an eager strategy at a moment, at the smallest batch."""
        return self.within(self.memory, implementation=name, batch=self.few, moment=moment).one

    def keeps_its_part(self, name: str, *components: str) -> bool:
        """Whether a rank keeps its part of what it keeps with hooks, after the update."""
        columns = [f"{component}_mib" for component in components]
        ours, whole = (self.moment(of, "after_step")[columns].sum() for of in (name, HOOKS))
        return abs(ours / whole * self.ranks - 1) < SAME

    @property
    def buckets_gib(self) -> float:
        """GiB of DistributedDataParallel's buckets, if these hold all gradients."""
        held = self.moment(DDP, "init")["other_mib"]
        if held < 0.9 * self.moment(DDP, "before_step")["gradients_mib"]:
            raise NotMeasured("the buckets do not hold all gradients")
        return held / 1024

    def gpus_needed(self, name: str) -> int | None:
        """The least number of GPUs for the course's largest model, with as many tokens a GPU.

        None: no number is enough.
        """
        memory = self.evidence.environment.get("device_memory_gib")
        if not memory or abs(self.moment(name, "peak")["off"]) > ranks_memory.CLOSE:
            raise NotMeasured("the closed form does not hold here")
        batch = max(1, self.few // self.ranks)
        setting = int(self.cell["context_length"]), batch, self.cell["dtype"]
        return ranks_memory.least_gpus(name, SHORT[self.largest], *setting, memory)

    # The train step of a public leaderboard (D6).

    @property
    def board(self) -> pd.Series:
        """Its fastest step."""
        return self.rows("distributed_leaderboard").least("ms")

    @property
    def board_alone(self) -> pd.Series:
        """Its fastest step on one GPU of this kind.

        It may be in the evidence of another machine with the same kind of GPU and software.
        """
        cell = self.board[["size", "context_length", "batch", "dtype"]]
        for evidence in (self.evidence, *self.evidence.others):
            rows = having(evidence.rows("leaderboard"), holds=True, **cell)
            if len(rows) and _software(evidence) == _software(self.evidence):
                return rows.loc[rows["ms"].idxmin()]
        raise NotMeasured("the leaderboard's step was not measured on one GPU")

    # The head of the page, and what limits its numbers.

    @property
    def nccl(self) -> str:
        found = self.evidence.environment.get("nccl") or {}
        if not (version := found.get("NCCL_VERSION")):
            raise NotMeasured("no version of NCCL")
        return version.partition("-")[0]

    @property
    def nvlinks(self) -> int:
        """The number of NVLinks between each two GPUs."""
        links = {str(one) for one in (self.evidence.environment.get("links") or {}).values()}
        numbers = {one.removeprefix("NV") for one in links}
        if len(numbers) != 1 or not (number := numbers.pop()).isdecimal():
            raise NotMeasured("no NVLinks, or different ones")
        return int(number)

    @property
    def slower_than_one(self) -> Rows:
        """The fastest step of each size and dtype where all wait, and none is faster than one."""
        found = []
        for _, rows in parts(self.steps.valid.frame, "size", "dtype"):
            several, alone = rows[rows["ranks"] > 1], rows[rows["ranks"] == 1]
            waits = len(several) > 0 and len(alone) > 0 and several["waits"].all()
            if waits and several["ms"].min() > alone["ms"].min():
                found.append(several["ms"].idxmin())
        return self.steps.kept(self.steps.frame.loc[found])


def _software(evidence: Evidence) -> list:
    """What decides whether two machines can be compared: the kind of GPU and the versions."""
    return [evidence.environment.get(name) for name in ("device", "torch", "cuda", "triton")]


def is_faster(one: pd.Series, other: pd.Series) -> bool:
    """Whether a step takes less time than another, beyond intervals and noise floors.

    A step that waits for the CPU counts with the time that it takes here.
    """
    floor = 1 + max(one["floor"], other["floor"])
    return bool(one["high_ms"] < other["low_ms"] and floor * one["ms"] < other["ms"])
