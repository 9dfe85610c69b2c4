"""Everything that the tests of this folder run on two gloo processes, in one group."""

from __future__ import annotations

from typing import Any

import collective_cases
import leaderboard_cases
import overlap_cases
import pytest
import recommended_cases
import sharded_leaderboard_cases
import strategy_cases

from lmperf.benchmark import Rank


def run(rank: Rank) -> dict[str, Any]:
    """Name of a part -> what it returns on this rank."""
    strategy_cases.use_toy(pytest.MonkeyPatch())
    return {
        "cells": collective_cases.gates_of_cells(rank),
        "course": strategy_cases.course(rank),
        "strategies": {
            (name, dtype): found
            for dtype, names in strategy_cases.NAMES.items()
            for name, found in strategy_cases.gates(rank, dtype, names).items()
        },
        "planted": strategy_cases.planted(rank, strategy_cases.PLANTED | strategy_cases.RIGHT),
        "own_model": strategy_cases.on_own_model(rank),
        "refused": strategy_cases.refused(rank),
        "ledgers": overlap_cases.ledgers_on(rank),
        # Last: these switch compilers off for good.
        "leaderboard": leaderboard_cases.gates(rank),
        "wrong": leaderboard_cases.wrong(rank),
        "sharded": sharded_leaderboard_cases.run(rank),
        "recommended": recommended_cases.run(rank),
    }
