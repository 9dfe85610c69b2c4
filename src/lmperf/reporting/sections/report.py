"""The first page: what was measured with what, and how far to trust it."""

from __future__ import annotations

from calendar import month_name
from datetime import date
from functools import cached_property

import pandas as pd

from lmperf.benchmarks import load, stems
from lmperf.reporting.calculations.steps import all_steps
from lmperf.reporting.frames import required
from lmperf.reporting.judging import WITHHELD
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import Count, NotMeasured, listed, name
from lmperf.transformer.rungs import IN_FLOAT8

# The instructions of a processor, by the last words of its name, that it does not have.
LACKS = {
    "AVX2": ["AVX-512", "bf16", "AMX"],
    "AVX-512": ["bf16", "AMX"],
    "AVX-512 BF16": ["AMX"],
}


class Report(Section):
    """Facts about the machine and about all rows."""

    @property
    def only_several(self) -> bool:
        """Whether this machine has the section on several GPUs and nothing else."""
        pages = {load(stem).section or stem for stem in self.evidence.stems}
        return pages <= {"distributed", "method"} and self.of("distributed").has_head

    @property
    def lacks(self) -> list[str] | None:
        """The instructions that matter for matmuls and that this processor does not have."""
        name = str(self.evidence.environment.get("cpu_model"))
        return LACKS.get(name.rpartition(", ")[2])

    def versions(self, fact: str) -> str | None:
        """A fact of all environments, ``2.10.0 and 2.11.0``; or None."""
        values = [facts.get(fact) for facts in self.evidence.environments.values()]
        distinct = dict.fromkeys(_version(value) for value in values if value)
        return listed(distinct) if distinct else None

    @property
    def nvlinks(self) -> int:
        """The number of NVLinks between each two GPUs."""
        links = {str(link) for link in (self.evidence.environment.get("links") or {}).values()}
        numbers = {link.removeprefix("NV") for link in links}
        if len(numbers) != 1 or not (number := numbers.pop()).isdecimal():
            raise NotMeasured("no NVLinks, or different ones")
        return int(number)

    @property
    def dates(self) -> str | None:
        """``24 to 26 November 2026``: when the rows were measured; or None."""
        times = self._rows["measured_at"].dropna()
        if times.empty:
            return None
        first, last = (date.fromisoformat(time[:10]) for time in (times.min(), times.max()))
        ends = [str(last.day), month_name[last.month], str(last.year)]
        begins = [str(first.day), month_name[first.month], str(first.year)]
        while len(begins) > 1 and begins[-1] == ends[len(begins) - 1]:
            begins.pop()
        return " ".join(ends if first == last else [*begins, "to", *ends])

    @cached_property
    def _rows(self) -> pd.DataFrame:
        """What all rows have in common."""
        names = ["state", "reason", "gpus", "measured_at", "implementation"]
        names += ["max_error", "error_bound", "key"]
        frames = [
            self.evidence.rows(stem)[names].assign(stem=stem)
            for stem in stems()
            if stem in self.evidence.stems
        ]
        if not frames:
            return pd.DataFrame(columns=[*names, "stem"])
        return pd.concat(frames, ignore_index=True)

    # Checks.

    @property
    def checks(self) -> int:
        """Rows that were compared with a float64 reference or are withheld for another reason."""
        return len(self._checked)

    @property
    def stale_checks(self) -> int:
        """Those of older code or another environment."""
        stale = self._checked["key"].isin(self.evidence.stale)
        return int(required(stale[stale], "all checks are fresh").sum())

    @property
    def _checked(self) -> pd.DataFrame:
        compared = self._rows[["max_error", "error_bound"]].notna().all(axis=1)
        return self._rows[compared | self._rows["state"].isin(WITHHELD)]

    @property
    def failed(self) -> Rows:
        """Where checks failed or times are impossible, a line for each benchmark and reason.

        names: the implementations, peers with the version of their package. error: the largest.
        """
        rows = self._rows[self._rows["state"].isin(WITHHELD)]
        peers = {
            key: version
            for facts in self.evidence.environments.values()
            for key, version in (facts.get("peers") or {}).items()
        }
        names = [f"{name(key)} {peers.get(key, '')}".rstrip() for key in rows["implementation"]]
        groups = rows.assign(words=names).groupby(["stem", "reason"], sort=False, dropna=False)
        lines = groups.agg(
            names=("words", lambda words: listed(words.unique())),
            error=("max_error", "max"),
            bound=("error_bound", "first"),
            rows=("state", "size"),
        )
        return self.rows("", lines.reset_index())

    @property
    def failures(self) -> Count:
        return Count(int(self.failed.frame["rows"].sum()), self.checks)

    # How far to trust this.

    @property
    def gpu_reports(self) -> list[tuple[str, str]]:
        """(device, link) of the GPUs with train steps, for a machine without one."""
        if self.evidence.is_cuda:
            return []
        machines = [
            machine
            for machine in self.evidence.others
            if machine.is_cuda and "end_to_end" in machine.stems
        ]
        return [(machine.device, machine.link) for machine in machines]

    @property
    def gpus(self) -> int:
        """How many GPUs are known to have measured rows."""
        gpus = pd.concat([self._rows["gpus"], self.evidence.twice["gpus_again"]])
        gpus = gpus.dropna().astype(str)
        return gpus[gpus.str.startswith("GPU-")].str.split(";").explode().nunique()

    @property
    def at_once(self) -> int:
        """How many benchmarks were measured at the same time on GPUs of their own, at most."""
        cost = self.evidence.cost
        if not self.evidence.is_cuda or not {"measured_at", "gpus"} <= {*cost}:
            return 1
        begun, ended = cost["started_at"].astype(str), cost["measured_at"].astype(str)
        gpus = [cost.loc[(begun <= time) & (time < ended), "gpus"].nunique() for time in begun]
        return max(1, *gpus)

    @cached_property
    def graphs(self) -> pd.DataFrame:
        """The train steps in a CUDA graph whose power is known and that hold."""
        rows = all_steps(self.evidence)
        names = rows["implementation"]
        is_graph = names.str.endswith("graph") | names.isin([rung.name for rung in IN_FLOAT8])
        return rows[is_graph & rows["power_w"].notna() & rows["holds"]]

    @cached_property
    def at_limit(self) -> pd.DataFrame:
        """Those of `graphs` that draw the power limit back to back, below the GPU's clock."""
        rows = self.graphs[self.evidence.at_limit(self.graphs, below_clock=1.0)]
        return required(rows, "no graph draws the power limit")


def _version(recorded: str | int) -> str:
    """``2.10.0`` of ``2.10.0+cu130``; ``9.19`` of cuDNN's 91900."""
    if isinstance(recorded, int):
        return f"{recorded // 10_000}.{recorded % 10_000 // 100}"
    return str(recorded).split("+")[0]
