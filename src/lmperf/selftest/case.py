"""Defines a case of the self-test: a planted implementation with its expected outcome.

A planted implementation is wrong, slow, fake or harmful on purpose. A session measures some of them
in one cell, beside an implementation of the project (the neighbour).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lmperf.evidence.machine import Machine
from lmperf.selftest.expectations import LEDGER_STEM, RANKED_STEM, STEM, Found, Outcome


class Expectation(Protocol):
    """Judges whether a planted implementation had its expected outcome.

    Attributes:
        words: the expected outcome in words.
    """

    words: str

    def __call__(self, found: Found) -> Outcome:
        """Return the outcome of the planted implementation, judged from the rows of the session."""


_RANKED = {"size": "tiny", "context_length": 128, "batch": 4, "ranks": 2, "dtype": "float32"}
# Stem -> values of the axes of a session that states no other.
_CELLS = {
    STEM: {
        **{"batch": 1, "heads": 4, "d_head": 64, "dtype": "float32", "causal": True},
        "cuda_graph": False,
    },
    RANKED_STEM: _RANKED,
    LEDGER_STEM: _RANKED,
}


@dataclass(frozen=True, eq=False)
class Session:
    """A cell in which planted implementations are measured beside one of the project.

    Attributes:
        name: name of the session.
        cpu, cuda: values of the axes that differ from the default cell, on a CPU and on CUDA.
        neighbour: name of the project's implementation.
        limit_s: timeout of a step in seconds.
        patient: whether a CPU measures longer, because the speed-ups of this session are judged.
        busy: whether a process on every core computes meanwhile.
        stem: the benchmark that measures them.
        devices: devices that the machine must have; a CPU counts as two.
    """

    name: str
    cpu: Mapping
    cuda: Mapping
    neighbour: str = "eager"
    limit_s: float = 60.0
    patient: bool = False
    busy: bool = False
    stem: str = STEM
    devices: int = 1

    def grid(self, kind: str) -> dict[str, list]:
        """Return the cell on a kind of device (cpu, cuda or mps), as a grid for a configuration."""
        cell = {**_CELLS[self.stem], **(self.cuda if kind == "cuda" else self.cpu)}
        return {
            **{axis: [value] for axis, value in cell.items()},
            "implementation": [self.neighbour],
        }


@dataclass(frozen=True)
class Case:
    """A planted implementation (wrong, slow, fake or harmful on purpose) and its expected outcome.

    Attributes:
        module: name of a module in `lmperf.selftest.planted`.
        name: name of the function in that module, and of the implementation.
        does: what the implementation does wrong or differently, in words.
        expect: the expected outcome.
        why: the check that detects the implementation, or why none needs to, in words.
        needs: the kind of device that the implementation needs; None: any.
    """

    module: str
    name: str
    does: str
    expect: Expectation
    why: str
    needs: str | None = None

    @property
    def reference(self) -> str:
        return f"lmperf.selftest.planted.{self.module}:{self.name}"

    def left_out(self, kind: str) -> str | None:
        """Return why the case cannot run on a kind of device; None if it can."""
        return f"needs a {self.needs.upper()} device" if self.needs not in (None, kind) else None


def left_out(session: Session, case: Case, machine: Machine) -> str | None:
    """Return why a case of a session cannot run on a machine; None if it can."""
    if machine.devices < session.devices:
        return f"needs {session.devices} devices"
    return case.left_out(machine.kind)
