"""The correctness gate: compares the errors of a result with their bounds, in this module only.

A worker process judges each gate once, and records the verdict as the status of the row: `ok`,
`failed_check` (an error exceeds its bound) or `nan` (an error is not finite). All other code reads
the status from the row. `evidence.rows` rejects rows whose status contradicts their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# Statuses of rows that failed a correctness check: their times are not reported.
FAILED = ("failed_check", "nan")
# The reason of a row whose call fits into memory, but whose correctness check does not.
UNCHECKED = "not checked: its check needs more memory than the device has"
# Name of an error -> what it says beyond the name, for the reason of a row.
_MEANS = {
    "gain": ": its length is wrong, as after clipping or with a scaled loss",
    "update": " after five steps of AdamW",
}


def verdict(error: float, bound: float) -> str:
    """Compare an error with its bound; return the status `ok`, `failed_check` or `nan`."""
    if not math.isfinite(error):
        return "nan"
    return "ok" if error <= bound else "failed_check"


@dataclass(frozen=True)
class Gate:
    """The errors of a result against a reference, and the bound of each error.

    Attributes:
        errors: tensor name -> error.
        bounds: tensor name -> largest error that passes.
        pytorch: returns the errors of PyTorch's own implementation, with the same dtype and inputs.
            It is called only if the gate fails, so that the row can show both errors.
        where: name that covers several tensors (e.g. `gradient`) -> the one with the largest error.
        reference: what the result is compared with, in words.
        advice: what may mend a result that fails, for the reason of its row.
    """

    errors: Mapping[str, float]
    bounds: Mapping[str, float]
    pytorch: Callable[[], Mapping[str, float]] | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    reference: str = "the float64 reference"
    advice: str = ""

    @property
    def worst(self) -> str:
        """The name of the tensor with the largest ratio of error to bound."""
        return max(self.errors, key=lambda name: excess(self.errors[name], self.bounds[name]))

    @property
    def worst_in_words(self) -> str:
        """The worst tensor in words for a message, for example `gradient of layers.0.wq`."""
        worst = self.worst
        return f"{worst} of {self.where[worst]}" if worst in self.where else worst

    @property
    def verdict(self) -> str:
        """`ok`, `failed_check` or `nan`: the verdict on the worst tensor."""
        return verdict(self.errors[self.worst], self.bounds[self.worst])

    @property
    def passed(self) -> bool:
        """Whether every error is within its bound."""
        return self.verdict == "ok"

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a row: `status`, every error, and the worst error with its bound.

        A failed gate adds the reason and, if known, PyTorch's error for the worst tensor.
        """
        status, worst = self.verdict, self.worst
        row = {"status": status, "max_error": self.errors[worst], "error_bound": self.bounds[worst]}
        row |= {f"error_{name}": error for name, error in self.errors.items()}
        if status == "ok":
            return row
        wrong = "is not finite" if status == "nan" else f"differs from {self.reference}"
        meaning = _MEANS.get(worst, "") if status == "failed_check" else ""
        row["reason"] = f"{self.worst_in_words} {wrong}{meaning}{self.advice}"
        pytorch = self.pytorch() if self.pytorch else {}
        return row | ({"pytorch_error": pytorch[worst]} if worst in pytorch else {})


def excess(error: float, bound: float) -> float:
    """Return the ratio of an error to its bound; infinite if the error is not a number."""
    return math.inf if math.isnan(error) else error / bound
