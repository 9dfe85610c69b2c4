"""The contents of the page that shows machines side by side, in Markdown and on the site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.machine_ratios import (
    data_sheets,
    ratio_tables,
    ratios_by_bound,
    unequal_software,
)
from lmperf.reporting.other_machines import TABLE, ceilings_by_machine, machines_lines
from lmperf.results import Table


def compared(machines: Sequence[MachineEvidence], form: Callable[[Table], str]) -> dict[str, Any]:
    """The values of the templates: the machines, their ceilings, and one with each of the others.

    That one has the most rows. A machine that shares no cell with it has no pair.

    form: makes Markdown or HTML from a table.
    """

    def shown(table: Table | None) -> str:
        return form(table) if table is not None else ""

    first = max(machines, key=lambda one: one.row_count)
    pairs = [
        {
            "one": first.name,
            "other": other.name,
            "page": f"machines-{first.link}-{other.link}.md",
            "unequal": unequal_software(first, other),
            "sheets": shown(data_sheets(first, other)),
            "gains": shown(ratios_by_bound(first, other)),
            "tables": [form(table) for table in ratio_tables(first, other)],
        }
        for other in machines
        if other is not first
    ]
    return {
        "machines": shown(machines_lines(machines)),
        "ceilings": shown(ceilings_by_machine(machines)),
        "heading": TABLE.heading,
        "anchor": TABLE.anchor,
        "pairs": [pair for pair in pairs if pair["tables"]],
    }
