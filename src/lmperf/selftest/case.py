"""What a case of the selftest is: something planted, beside whom, and what must become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lmperf.selftest.expectations import Found, Outcome


class Expectation(Protocol):
    """What must become of a planted implementation; `words` say it."""

    words: str

    def __call__(self, found: Found) -> Outcome:
        """What has become of it."""


@dataclass(frozen=True, eq=False)
class Session:
    """One cell, at which planted implementations are measured beside one of the project's own.

    Attributes:
        name: of the session.
        cpu, cuda: axes of its cell that differ from the default.
        peer: the project's own implementation.
        limit_s: time-out of a step.
        patient: whether its verdicts matter, so that a processor may take longer over them.
    """

    name: str
    cpu: Mapping
    cuda: Mapping
    peer: str = "eager"
    limit_s: float = 60.0
    patient: bool = False

    def grid(self, kind: str) -> dict[str, list]:
        """The cell on a kind of device, as a grid of the configuration."""
        cell = {"batch": 1, "heads": 4, "d_head": 64, "dtype": "float32", "causal": True}
        cell |= {"cuda_graph": False, **(self.cuda if kind == "cuda" else self.cpu)}
        return {**{axis: [value] for axis, value in cell.items()}, "implementation": [self.peer]}


@dataclass(frozen=True)
class Case:
    """A planted implementation.

    Attributes:
        module: of `lmperf.selftest.planted`.
        name: the function in it, and of the implementation.
        does: what is wrong with it, or special.
        expect: what must become of it.
        why: the guard that catches it, or that leaves it in peace.
        needs: the kind of device without which it cannot run.
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
        """Why it is not run on a kind of device, or None."""
        return f"needs a {self.needs.upper()} device" if self.needs not in (None, kind) else None
