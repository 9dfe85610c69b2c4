"""Repeatability (R1): rows that were measured a second time, in a new process.

A pair has the same key: the same cell, code, method and environment.
"""

from __future__ import annotations

from contextlib import suppress

import pandas as pd

from lmperf.names import axis_words, implementation_words, phase_words, value_words
from lmperf.reporting.evidence import ASSUMED_FLOORS, Evidence
from lmperf.reporting.frames import having, required
from lmperf.reporting.judging import KERNEL, PASS, STEP, WAITING
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.words import NotMeasured, Range
from lmperf.statistics import LEAST_FLOOR

FEWEST = 3  # pairs of which a sentence says how far they are apart
# Kinds of rows, and several of one.
KINDS = {
    KERNEL: "kernels",
    PASS: "passes over memory",
    STEP: "steps",
    WAITING: "steps that wait for the CPU",
}


class Repeatability(Section):
    """The second time of each row beside its first."""

    kernels, passes, steps, waiting = KERNEL, PASS, STEP, WAITING

    @property
    def lines(self) -> Rows:
        """`Evidence.twice` as lines of table R1.

        devices: the GPUs of the first and of the second time, each by a number.
        """
        rows = self.evidence.twice
        both = rows[["gpus", "gpus_again"]].fillna("")
        known = dict.fromkeys(gpu for row in both.to_numpy() for gpu in ";".join(row).split(";"))
        numbers = {gpu: str(number) for number, gpu in enumerate(filter(None, known), 1)}
        words = both.map(lambda gpus: "+".join(map(numbers.get, filter(None, gpus.split(";")))))
        devices = words["gpus"] + ", " + words["gpus_again"]
        return self.rows("", rows.assign(devices=devices.where(words.ne("").all(axis=1))))

    def apart(self, kind: str) -> Range:
        """How far the times of a kind differ."""
        rows = self.sound(kind)
        return of_rows(Range.of(rows["apart"]), rows)

    def sound(self, kind: str) -> pd.DataFrame:
        """The rows of a kind that were measured twice and that a sentence may rest on.

        Raises NotMeasured for fewer than FEWEST.
        """
        return _enough(self.of_kind(kind))

    def of_kind(self, kind: str) -> pd.DataFrame:
        """The rows of a kind that were measured twice."""
        return having(self.evidence.twice, noise_kind=kind)

    @property
    def assumed(self) -> list[str]:
        """The kinds whose noise floor of speed-ups is assumed: too few were measured twice."""
        assumed = [kind for kind in self._kinds if is_assumed(self.evidence, kind)]
        return [KINDS[kind] for kind in required(assumed, "all noise floors are measured")]

    @property
    def steps_are_assumed(self) -> bool:
        return is_assumed(self.evidence, STEP)

    @property
    def floors(self) -> list[tuple[str, float]]:
        """(kind, noise floor of its speed-ups) of the kinds that this machine may have."""
        floors = self.evidence.speedup_floors
        return [(KINDS[kind], max(floors[kind], LEAST_FLOOR)) for kind in self._kinds]

    @property
    def _kinds(self) -> list[str]:
        """The kinds of the rows of this machine, but those of its ceilings."""
        stems = [stem for stem in self.evidence.stems if stem != "ceilings"]
        of_rows = {kind for stem in stems for kind in self.evidence.rows(stem)["noise_kind"]}
        return [kind for kind in KINDS if kind in of_rows]

    @property
    def moved(self) -> pd.DataFrame:
        """The rows whose second time is known to be of other GPUs than the first one."""
        both = self.evidence.twice.dropna(subset=["gpus", "gpus_again"])
        sets = both[["gpus", "gpus_again"]].map(lambda gpus: {*gpus.split(";")})
        return both[sets["gpus"] != sets["gpus_again"]]

    @property
    def is_elsewhere(self) -> bool:
        """Whether `between_gpus` says the same as `spreads`."""
        with suppress(NotMeasured):
            return self.between_gpus == self.spreads
        return False

    @property
    def between_gpus(self) -> list[tuple[str, float, float, int, str]]:
        """How far two GPUs time the same rows apart, as `spreads`; no step waited either time."""
        waited = self.moved[["waits", "waits_again"]].astype(bool).any(axis=1)
        return _spreads(self.moved[~waited])

    @property
    def spreads(self) -> list[tuple[str, float, float, int, str]]:
        """Of each kind of rows that were measured twice: the kind, the median and the greatest of
        the differences, their number, and which row has the greatest.
        """
        return _spreads(self.evidence.twice)

    @property
    def speedups(self) -> tuple[float, int]:
        """How far the speed-ups of steps differ at most, and how many were measured twice."""
        rows = having(self.evidence.speedups_twice, noise_kind=STEP, phase="train_step")
        rows = _enough(rows)
        apart = (rows["again"] - 1).abs().max()
        return of_rows(float(apart), rows), len(having(rows, follows=False))


def is_assumed(evidence: Evidence, kind: str) -> bool:
    """Whether the noise floor of speed-ups between rows of a kind is assumed."""
    return evidence.speedup_floors[kind] == ASSUMED_FLOORS[kind]


def _spreads(rows: pd.DataFrame) -> list[tuple[str, float, float, int, str]]:
    spreads = []
    for kind, words in KINDS.items():
        with suppress(NotMeasured):
            pairs = _enough(having(rows, noise_kind=kind))
            apart = pairs["apart"].astype(float)
            median, greatest = (of_rows(value, pairs) for value in (apart.median(), apart.max()))
            farthest = _short(pairs.loc[apart.idxmax()])
            spreads.append((words, median, greatest, len(pairs), farthest))
    return required(spreads, "too few rows were measured twice")


def _short(row: pd.Series) -> str:
    """A row in few words: what ran, which phase, at which size, or at which width and length.

    Without these axes, which operation, or the whole name of the row.
    """
    if all(pd.isna(row.get(axis)) for axis in ("size", "d_head")):
        axes = [axis for axis in ("operation", "message_bytes", "load") if pd.notna(row.get(axis))]
        return ", ".join(str(value_words(axis, row[axis])) for axis in axes) or row["cell"]
    is_model = pd.notna(row.get("size"))
    words = [implementation_words(row["implementation"], ("size",) if is_model else ())]
    words += [] if row["phase"] == "train_step" else [phase_words(row["phase"])]
    words += [str(row["size"])] if is_model else []
    widths = [(axis, row.get(axis)) for axis in ("d_head", "seq_len")]
    words += [f"{axis_words(axis)} {value:,.0f}" for axis, value in widths if pd.notna(value)]
    return ", ".join(words)


def _enough(rows: pd.DataFrame) -> pd.DataFrame:
    """The pairs of which a sentence may say how far they are apart."""
    rows = rows[rows["holds"].astype(bool)] if len(rows) else rows
    if len(rows) < FEWEST:
        raise NotMeasured(f"fewer than {FEWEST} rows that hold were measured twice")
    return rows
