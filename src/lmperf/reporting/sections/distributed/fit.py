"""Table D13: what a model needs on how many GPUs, in closed form, checked by D8 and D11.

`needs_table` also makes the output of `lmperf fit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from lmperf.devices import MEMORY_GIB
from lmperf.distributed.fit import RESERVED, STRATEGIES, Need, Setting, least_gpus, need, needs
from lmperf.distributed.memory import COMPONENTS
from lmperf.names import dtype_words, in_order
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import PAGE, Finding, NotMeasured, measured, sound
from lmperf.reporting.machine import newest
from lmperf.reporting.numbers import GIB, percent, signed_percent
from lmperf.reporting.sections.distributed import memory, rows
from lmperf.reporting.tables import Owed, TableGroup, as_cell, from_frame, number_cell
from lmperf.results import NO_ROW, Cell, Table
from lmperf.transformer.sizes import SIZES

# The setting of the course: 4 sequences of 512 tokens on two GPUs.
CONTEXT, BATCH, GPUS, DTYPE = 512, 2, 2, "autocast_bfloat16"
COURSE = ("0.97B", "2.0B", "3.4B", "12.8B")
# Kinds of GPUs for which D13 says how many a model needs, beside that of the machine.
KINDS = ("H100 80GB HBM3", "H200", "B200")
CHECKPOINTS = {False: "no", True: "yes"}
LABELS = {"parameters": "parameters", "gradients": "gradients", "optimizer": "state"}
OTHER = "activations and buffers"


def needs_table(
    name: str,
    setting: Setting,
    gpus: int,
    memory_gib: float,
    checkpointed: Collection[bool] = (False, True),
) -> Table:
    """A table with a line for each strategy: GiB per GPU, whether it fits, the least GPUs.

    name: of the model's size.
    """
    bytes_ = memory_gib * GIB
    lines = [
        {
            **_line(one),
            "fits": as_cell("yes" if one.fits(bytes_) else "no"),
            "least": _least(setting, one, bytes_),
        }
        for one in needs(setting, gpus, checkpointed)
    ]
    headers = {**_headers(), "fits": "fits", "least": "fits from (GPUs)"}
    words = f"{gpus} GPU{'s' * (gpus > 1)} with {memory_gib:.4g} GiB"
    caption = (
        f"{name} ({setting.size.parameters() / 1e9:.3g}B parameters), context"
        f" {setting.context:,}, {setting.batch} a GPU, {dtype_words(setting.dtype)}, {words}"
    )
    return from_frame(caption, pd.DataFrame(lines), _reserved(), headers=headers)


def _line(one: Need) -> dict:
    parts = {f"{part}_gib": number_cell(one.parts[part] / GIB) for part in COMPONENTS}
    return {
        "strategy": one.strategy,
        "checkpoints": CHECKPOINTS[one.checkpointed],
        **parts,
        "total_gib": number_cell(one.total / GIB),
    }


def _headers() -> dict[str, str]:
    parts = {f"{part}_gib": f"{LABELS.get(part, OTHER)} (GiB)" for part in COMPONENTS}
    return {**parts, "total_gib": "in all (GiB)"}


def _least(setting: Setting, one: Need, bytes_: float) -> Cell:
    found = least_gpus(setting, one.strategy, one.checkpointed, bytes_)
    return Cell("none", state=NO_ROW) if found is None else Cell(f"{found:,}", float(found))


def _reserved() -> str:
    return (
        "At the peak of a step, in closed form. It fits if it leaves"
        f" {percent(RESERVED, 0)} of the memory to driver, libraries and gaps."
    )


def tables(evidence: MachineEvidence) -> list[Table]:
    """Table D13: GiB per GPU on two GPUs, and the least number of GPUs of several kinds."""
    if evidence.frame(rows.MEMORY) is None:
        return []
    kinds = _kinds(evidence)
    lines = [
        {
            "size": SIZES[name].short,
            **_line(one),
            **{f"least.{kind}": _least(setting, one, gib * GIB) for kind, gib in kinds.items()},
        }
        for name in COURSE
        for setting in [_setting(name)]
        for one in needs(setting, GPUS)
    ]
    headers = {
        **_headers(),
        **{f"least.{kind}": f"{kind}: fits from (GPUs)" for kind in kinds},
    }
    caption = f"Memory on {GPUS} GPUs, context {CONTEXT}, {BATCH} a GPU, {dtype_words(DTYPE)}"
    note = f"The setting of the course. {_reserved()} {_difference(evidence)}"
    return [from_frame(caption, pd.DataFrame(lines), note, headers=headers)]


def _setting(name: str) -> Setting:
    return Setting(SIZES[name], CONTEXT, BATCH, DTYPE)


def _kinds(evidence: MachineEvidence) -> Mapping[str, float]:
    """Kind of GPU -> its memory in GiB; first this machine's, as the driver shows it."""
    here = newest(evidence).get("device_memory_gib")
    known = {name: float(MEMORY_GIB[name]) for name in KINDS}
    if not here:
        return known
    name = str(newest(evidence).get("device") or "").removeprefix("NVIDIA ")
    return {name or "this machine": here, **{k: gib for k, gib in known.items() if k != name}}


def _difference(evidence: MachineEvidence) -> str:
    """How far measured peaks are from the closed form on this machine, in words."""
    try:
        off = differences(evidence)
    except NotMeasured:
        return "No peak was measured here."
    return (
        f"Measured here (D8, D11): {len(off)} peaks per rank, {signed_percent(off.min())} to"
        f" {signed_percent(off.max())} from the closed form."
    )


def differences(evidence: MachineEvidence) -> pd.Series:
    """Relative difference of each sound measured peak from its closed form; or NotMeasured."""
    frame = sound(evidence, rows.MEMORY)
    frame = memory.with_predictions(evidence, measured(frame[frame["moment"] == "peak"]))
    whole = f"{memory.TOTAL}_mib"
    off = (frame[whole] / frame[f"predicted_{whole}"] - 1).dropna()
    return measured(off)


def _largest(evidence: MachineEvidence) -> dict:
    """The least numbers of this machine's GPUs for the course's sizes, largest first."""
    here = newest(evidence).get("device_memory_gib")
    if not here or evidence.frame(rows.MEMORY) is None:
        raise NotMeasured
    replicated, sharded = (next(iter(STRATEGIES)), [*STRATEGIES][-1])
    sizes = in_order("size", [SIZES[name].short for name in COURSE])
    alone = [
        SIZES[name].short
        for name in COURSE
        if need(_setting(name), replicated, False, 1).fits(here * GIB)
    ]
    last = COURSE[-1]
    least = [
        (least_gpus(_setting(last), sharded, kept, here * GIB), kept) for kept in (False, True)
    ]
    gpus, checkpoints = min(((n, kept) for n, kept in least if n), default=(None, False))
    return {
        "alone": in_order("size", alone)[-1] if alone else "",
        "size": sizes[-1],
        "gpus": gpus,
        "checkpoints": checkpoints,
        "ranks": least_gpus(_setting(last), replicated, True, here * GIB),
    }


def _owed(evidence: MachineEvidence) -> tuple[int, int]:
    known = evidence.frame(rows.MEMORY) is not None or rows.MEMORY in evidence.lacking
    return len(tables(evidence)), int(known)


_ALONE = (
    "{% if alone %}{{ alone }} is the largest of the course's sizes that one GPU trains without"
    " sharding or checkpoints"
    f" (D13: context {CONTEXT}, {BATCH} sequences a GPU). {{% endif %}}"
)
FINDINGS = (
    Finding(
        name="distributed_fit",
        question="How many GPUs does the largest model of the course need?",
        values=_largest,
        answer=lambda v: "never" if not v["gpus"] else "both" if v["ranks"] else "sharded",
        answers={
            "sharded": _ALONE + "{{ size }} needs {{ gpus | count('GPU') }} of this kind, fully"
            " sharded{% if checkpoints %} and checkpointed{% endif %}; data parallel it fits on no"
            " number of them.",
            "both": _ALONE + "{{ size }} fits on {{ ranks | count('GPU') }} of this kind with"
            " checkpoints, fully sharded on {{ gpus | count('GPU') }}.",
            "never": _ALONE + "{{ size }} fits on no number of GPUs of this kind.",
        },
        place=PAGE,
    ),
)
TABLES = (
    TableGroup(
        "D13",
        "What a model needs on how many GPUs",
        tables,
        Owed(stem=rows.MEMORY, counted=_owed),
    ),
)
