"""The machine that measures: this one, or the nodes of a SLURM partition.

Where the workflow of a cluster runs there may be no GPU, or another one. So a job looks up the
hardware on a node (`lmperf detect`) and keeps it in `.lmperf/nodes/<partition>.json`:

    {"slug": name, "kind": "cuda", "facts": {...}}

Whoever plans or renders reads the file. A job that measures compares it with its own node.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel, StrictStr, ValidationError

from lmperf.config import Config
from lmperf.errors import UserError
from lmperf.evidence.machine import Machine, detect, environment_changes
from lmperf.evidence.store import write_atomically

FOLDER = Path(".lmperf/nodes")


class _Node(BaseModel):
    slug: StrictStr
    kind: StrictStr
    facts: dict


def file_of(root: Path, partition: str) -> Path:
    """The file with the hardware of a partition's nodes."""
    return root / FOLDER / f"{partition}.json"


def machine_of(config: Config, root: Path) -> Machine:
    """Return the machine that measures under a configuration.

    Raises:
        UserError: the nodes of the partition were never looked up, or this process is on a node
            that differs from them.
    """
    if config.partition is None:
        return detect(config.preset, config.machine)
    known = _known(file_of(root, config.partition), config.partition)
    if os.environ.get("SLURM_JOB_PARTITION") == config.partition:
        _require_same(known, detect(config.preset, known.slug), config.partition)
    return known


def record_node(config: Config, root: Path) -> Path:
    """Write the hardware of this node to the file of its partition; return the path of the file.

    Raises:
        UserError: the configuration names no partition.
    """
    if config.partition is None:
        raise UserError("config: partition is not set; it names the nodes whose hardware this is")
    here = detect(config.preset, config.machine)
    content = {"slug": here.slug, "kind": here.kind, "facts": here.facts}
    path = file_of(root, config.partition)
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
    return path


def _known(path: Path, partition: str) -> Machine:
    try:
        node = _Node.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        raise UserError(f"the nodes of partition {partition} are {_UNKNOWN}") from None
    return Machine(node.slug, node.kind, node.facts)


def _require_same(known: Machine, here: Machine, partition: str) -> None:
    if changes := environment_changes(known.facts, here.facts):
        raise UserError(
            f"this node differs from what is known of partition {partition}:"
            f" {', '.join(changes)}. If all its nodes do, run the target detect again; else give"
            " each kind of node a partition"
        )


_UNKNOWN = (
    "not known yet; look one up with: snakemake --workflow-profile profiles/slurm detect --config"
    " partition=..."
)
