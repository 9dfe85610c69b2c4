"""The cases of the selftest: a planted implementation, its session, and the expected outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lmperf.selftest.expectations import Found, Outcome


class Expectation(Protocol):
    """The expected outcome of a planted implementation; `words` describe it."""

    words: str

    def __call__(self, found: Found) -> Outcome:
        """The outcome, judged from the rows of the session."""


@dataclass(frozen=True, eq=False)
class Session:
    """One cell, in which planted implementations are measured beside one of the project's.

    Attributes:
        name: of the session.
        cpu, cuda: axes of its cell that differ from the default, by device.
        peer: the project's implementation.
        limit_s: timeout of a step in seconds.
        patient: whether its verdicts matter, so that a CPU may take longer for them.
    """

    name: str
    cpu: Mapping
    cuda: Mapping
    peer: str = "eager"
    limit_s: float = 60.0
    patient: bool = False

    def grid(self, kind: str) -> dict[str, list]:
        """The cell on a kind of device (cpu, cuda, mps), as a grid of a configuration."""
        cell = {"batch": 1, "heads": 4, "d_head": 64, "dtype": "float32", "causal": True}
        cell |= {"cuda_graph": False, **(self.cuda if kind == "cuda" else self.cpu)}
        return {**{axis: [value] for axis, value in cell.items()}, "implementation": [self.peer]}


@dataclass(frozen=True)
class Case:
    """A planted implementation.

    Attributes:
        module: module of `lmperf.selftest.planted`.
        name: the function in it, which is also the name of the implementation.
        does: its fault, or what is special about it.
        expect: the expected outcome.
        why: the guard that catches it, or why no guard does.
        needs: the kind of device that it needs, if any.
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
        """Why it cannot run on a kind of device; None if it can."""
        return f"needs a {self.needs.upper()} device" if self.needs not in (None, kind) else None
