"""The page of a machine's selftest, from `selftest.csv`: planted faults and their outcomes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lmperf.errors import UserError
from lmperf.reporting.foreign import taken_frame
from lmperf.reporting.markdown import pipe_table
from lmperf.reporting.pages import tidy
from lmperf.reporting.templates import load_templates
from lmperf.reporting.written import SELFTEST

PAGE = "selftest.md"
# Values of the column `held`.
HELD, NOT_HELD, NOT_RUN = "yes", "no", "not run"
COLUMNS = (
    *("case", "does", "expected", "outcome", "why", "held"),
    *("device", "torch", "commit", "measured_at"),
)


def page(directory: Path, templates: Path) -> str:
    """The page of a machine's selftest as Markdown.

    directory: `report/<machine>`.
    """
    rows = _rows(directory / SELFTEST)
    template = load_templates(templates).get_template("selftest.md.j2")
    text = template.render(
        machine=rows.iloc[0],
        held=rows[rows["held"] == HELD]["case"].tolist(),
        broken=rows[rows["held"] == NOT_HELD]["case"].tolist(),
        left_out=rows[rows["held"] == NOT_RUN]["case"].tolist(),
        table=pipe_table(_table(rows), right=[]),
    )
    return tidy(text)


def _table(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each case: what it does, the check that finds it, and the result."""
    lines = [
        (f"{row.case}: {row.does}", row.why, _result(row.held, row.expected, row.outcome))
        for row in rows.itertuples()
    ]
    return pd.DataFrame(lines, columns=["case", "caught by", "result"])


def _result(held: str, expected: str, outcome: str) -> str:
    if held == HELD:
        return f"as expected: {expected}"
    return f"{'not run' if held == NOT_RUN else 'not as expected'}: {outcome}"


def _rows(path: Path) -> pd.DataFrame:
    """The rows of `selftest.csv`; raises UserError if it cannot be read or is incomplete."""
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError):
        raise UserError(f"{path}: cannot be read; run make selftest to write it again") from None
    lacking = [name for name in COLUMNS if name not in rows]
    if lacking or rows.empty:
        what = f"lacks {', '.join(lacking)}" if lacking else "has no row"
        raise UserError(f"{path}: {what}; run make selftest to write it again")
    return taken_frame(rows)


def files(directory: Path, templates: Path) -> dict[str, str]:
    """File name -> text of the page; empty if the selftest has not run on this machine."""
    return {PAGE: page(directory, templates)} if (directory / SELFTEST).exists() else {}
