"""Everything that the tests of this folder run on two GPUs, in one group: its start takes long.

Spawned ranks import this module by its own name: `tests` may be an installed package.
"""

from __future__ import annotations

from typing import Any

import recommended_cases
import sharded_leaderboard_cases
from strategy_cases import AUTOCAST, EAGER, NAMES, PLANTED, gates, planted

from lmperf.benchmark import Rank

# Each class and each way to run its blocks; compiling takes longest.
COMPILED = (
    *("overlapped_graph", "sharded_optimizer_graph"),
    *("overlapped_compiled", "fully_sharded_compiled"),
    *("ddp_bf16_compiled", "fsdp2_kept_compiled"),
)
ON_TWO = (*EAGER, *COMPILED)


def run(rank: Rank) -> dict[str, Any]:
    """Name of a part -> what it returns on this rank."""
    return {
        "gates": [gates(rank, AUTOCAST, ON_TWO), gates(rank, "float32", NAMES[AUTOCAST])],
        "planted": planted(rank, PLANTED),
        "sharded": sharded_leaderboard_cases.run(rank),
        "example": recommended_cases.example(rank, ("data_parallel", "zero1", "resumed")),
    }
