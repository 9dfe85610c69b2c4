"""The benchmark of the training loss of each rung of the ladder on the same synthetic tokens.

The tokens have learnable structure; see `lmperf.transformer.training_loss.token_stream`.

A single loss says little about a rung: training amplifies rounding errors. So the learning rate
rises over the first steps, the loss of step t is a mean over the last tenth of the t steps, and
small models are trained several times.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from functools import partial
from typing import Any

from lmperf.axes import SIZE
from lmperf.benchmark import (
    Axis,
    Case,
    Implementation,
    Observed,
    WrongResult,
    grid,
    numbers,
    resolve,
)
from lmperf.benchmarks.end_to_end import EndToEnd
from lmperf.transformer.rungs import FLOAT8_GRAPH, RUNGS, Rung

STEPS = 100
SHOWN = (1, 10, STEPS)
# Size -> how many runs are trained; the number of a run is the seed of its weights and tokens.
REPEATS = {"0.13B": 3}
LEARNING_RATE = 3e-4
# Steps over which the learning rate rises to its value. Without them rounding alone moved the loss
# of 0.13B after 100 steps by 7.9 %, with them by 0.4 % (float32, bf16 autocast; one seed, a CPU).
WARM_UP = 30
# Of the steps of peers, which have float8 matmuls over bf16 weights.
_DTYPE_OF_PEERS = "bfloat16"


_FEW = ["float32", "autocast", "fused_loss", "graph", "bf16_weights", "bf16_graph"]


def _trained(rung: Rung) -> Implementation:
    """A rung as an implementation: the code of its implementation in `end_to_end`, in its dtype."""
    one = next(one for one in EndToEnd.implementations if one.name == rung.implementation)
    return replace(one, name=rung.name, options={"dtype": rung.dtype})


_cells = partial(grid, context_length=128, batch=2)


class LadderLoss(Observed):
    title = "The ladder's loss"
    section = "end_to_end"
    columns = numbers("step", "run", "loss")
    results = ("loss",)
    stated = {"steps": STEPS, "warm_up": WARM_UP}
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
    )
    phases = ("train_step",)
    index = ("step", "run")
    limit_s = 300.0
    implementations = tuple(map(_trained, (*RUNGS, FLOAT8_GRAPH)))
    grids = {
        # Compiling the step with bf16 weights would take longer than all of these steps.
        "cpu": [_cells(size="tiny", implementation=["float32", "autocast"])],
        # Larger sizes skip rungs that hardly change the loss.
        "gpu": [
            _cells(size="0.13B", implementation=[rung.name for rung in RUNGS]),
            _cells(size="0.97B", implementation=_FEW),
            _cells(size=["0.13B", "0.97B"], implementation=FLOAT8_GRAPH.name),
        ],
        # The graph has the losses of bf16 weights without one.
        "full": [
            _cells(
                size=["0.42B", "2.0B", "3.4B"],
                implementation=[name for name in _FEW if name != "bf16_weights"],
            ),
            _cells(size="3.4B", implementation=FLOAT8_GRAPH.name),
        ],
    }

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.transformer.steps import step_maker
        from lmperf.transformer.training_loss import losses

        implementation = self.require(case, device)
        if implementation.compiles:
            require_compiler(device)
        size, *cell = (case.axes[axis.name] for axis in self.axes)
        options = {"dtype": _DTYPE_OF_PEERS, **implementation.options}
        maker, dtype = step_maker(resolve(implementation.entry)), options["dtype"]
        rows = []
        for run in range(1, REPEATS.get(size, 1) + 1):
            found = losses(maker, dtype, size, *cell, device, run, STEPS, LEARNING_RATE, WARM_UP)
            bad = next((step for step, one in enumerate(found, 1) if not math.isfinite(one)), None)
            if bad is not None:
                raise WrongResult(f"the loss of step {bad} is not finite")
            means = {step: _of_last_tenth(found[:step]) for step in SHOWN}
            rows += [{"step": step, "run": run, "loss": loss} for step, loss in means.items()]
        return rows


def _of_last_tenth(losses: list[float]) -> float:
    """The mean of the last tenth of the losses, at least of one."""
    return statistics.fmean(losses[-max(1, len(losses) // 10) :])
