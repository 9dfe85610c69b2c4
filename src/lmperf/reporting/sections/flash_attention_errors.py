"""Errors of attention kernels: wrong results, errors beside PyTorch's (F4), and kernel tests."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from lmperf.names import implementation_words, in_order
from lmperf.reporting.frames import having, parts, sorted_for_reading
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections.flash_attention import FlashAttention
from lmperf.reporting.words import TENSORS, Range, listed

CHECK = "flash_attention_check"
CELL = ["dtype", "seq_len", "d_head", "mask", "batch", "heads", "cuda_graph"]
CHECKED = ("flash_attention_4",)
# What errors are compared with: plain attention, or without it the fallback SDPA backend.
REFERENCES = {"eager": "plain PyTorch", "sdpa_efficient": "SDPA efficient"}
# Of timed rows; the logsumexp is checked by kernel tests alone.
ERRORS = {f"error_{name}": words for name, words in TENSORS.items() if name != "lse"}


class FlashAttentionErrors(FlashAttention):
    """The errors of an attention, the subject, in all cells that were timed."""

    @property
    def checked_peers(self) -> list[FlashAttentionErrors]:
        """This section about each peer outside PyTorch: F4 has its errors, too."""
        names = [name for name in CHECKED if name in {*self.every.frame["implementation"]}]
        return [FlashAttentionErrors(self.evidence, name) for name in names]

    @property
    def failures(self) -> Rows:
        """Wrong results by d_head: whose, in how many shapes, and the errors of each tensor.

        apart: of the tensors beyond the bound, in `wrong`; `most`: the largest error of the others,
        in `right`. passes: widths at which all of these implementations pass.
        """
        lines, every = [], self.every.frame
        for (width,), part in parts(self._failed(when_timed=False), "d_head"):
            errors = part[[*ERRORS]].rename(columns=ERRORS).dropna(axis=1, how="all")
            is_wrong = errors.gt(part["error_bound"], axis=0).any()
            right = errors.loc[:, ~is_wrong]
            names = in_order("implementation", part["implementation"])
            failed = {*having(every, state="failed_check", implementation=names)["d_head"]}
            passing = having(every[every["state"].isna()], implementation=names)
            passing = passing.groupby("d_head")["implementation"].nunique().eq(len(names))
            right_at = [int(other) for other in passing.index[passing] if other not in failed]
            line = {
                "names": listed(map(implementation_words, names)),
                "version": self._version(part),
                "d_head": width,
                "shapes": len(part.drop_duplicates(CELL)),
                "wrong": listed(errors.columns[is_wrong]),
                "apart": of_rows(Range.of(errors.loc[:, is_wrong].stack()), part),
                "bound": part["error_bound"].iloc[0],
                "right": listed(right.columns) if len(right.columns) else None,
                "most": right.max().max(),
                "passes": listed(right_at) if right_at else None,
            }
            lines.append(line)
        return self.table_rows(lines)

    @property
    def failed_calls(self) -> Rows:
        """What passed its check before timing, but failed that of a timed call, by d_head.

        names and version: of what. shapes: in how many. reason: how, of the first of them.
        """
        failed = parts(self._failed(when_timed=True), "implementation", "d_head")
        lines = [
            {
                "names": implementation_words(implementation),
                "version": self._version(part),
                "d_head": width,
                "shapes": len(part.drop_duplicates(CELL)),
                "reason": part["reason"].iloc[0],
            }
            for (implementation, width), part in failed
        ]
        return self.table_rows(lines)

    def _failed(self, when_timed: bool) -> pd.DataFrame:
        """The rows that failed their check before timing, or only that of a timed call.

        A row has the errors of the check before timing.
        """
        rows = having(self.every.frame, state="failed_check")
        rows = rows[rows["error_bound"].notna()]  # others have an exception instead of errors
        is_wrong = rows[[*ERRORS]].gt(rows["error_bound"], axis=0).any(axis=1)
        return rows[is_wrong != when_timed]

    def _version(self, rows: pd.DataFrame) -> str | None:
        """The version of the package of a peer that rows are of."""
        facts = self.evidence.environments.get(rows["environment"].iloc[0], {})
        return (facts.get("peers") or {}).get(rows["implementation"].iloc[0])

    @cached_property
    def errors(self) -> Rows:
        """The largest errors of the subject over the phases of a cell, with PyTorch's (F4).

        gate: whether all of them passed their check.
        """
        rows = self.every.frame[self.every.frame["error_bound"].notna()]
        rows = rows.assign(failed=rows["state"].eq("failed_check"))
        columns = [*ERRORS, "max_error", "error_bound", "failed"]
        worst = rows.groupby(["implementation", *CELL], sort=False)[columns].max()
        worst = worst.reset_index("implementation")
        theirs = pd.concat([having(worst, implementation=name) for name in REFERENCES])
        theirs = theirs[~theirs.index.duplicated()].add_suffix("_theirs")
        errors = having(worst, implementation=self.subject).join(theirs).reset_index()
        errors = errors.assign(
            compared_with=errors["implementation_theirs"].map(REFERENCES),
            gate=np.where(errors["failed"].eq(True), "failed", "passed"),
            grid=errors["heads"] > 1,
        )
        order = ("grid", "cuda_graph", "seq_len", "d_head", "mask")
        return self.every.kept(sorted_for_reading(errors, order))

    @cached_property
    def tests(self) -> Rows:
        """The kernel tests with ``gate``: passed, failed, or why there is no result."""
        tests = self.rows(CHECK).frame
        gate = tests["words"].replace("", "passed").mask(tests["state"] == "failed_check", "failed")
        return self.rows(CHECK, tests.assign(gate=gate))

    @property
    def tf32_errors(self) -> Range:
        """How many times as large the errors in TF32 are as those in float32."""
        rows = having(self.errors.frame, dtype=["tf32", "float32"])
        tf32, float32 = (
            having(rows, dtype=dtype).set_index(CELL[1:])[[*ERRORS]]
            for dtype in ("tf32", "float32")
        )
        return of_rows(Range.of((tf32 / float32.reindex(tf32.index)).stack()), rows)
