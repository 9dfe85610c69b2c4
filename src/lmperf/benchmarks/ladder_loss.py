"""The benchmark of the training loss of each rung of the ladder on the same synthetic tokens.

The tokens have learnable structure; see `lmperf.transformer.training_loss.token_stream`.

A single loss says little about a rung: training amplifies rounding errors, so that the losses of
two rungs that differ in rounding alone are up to 7 % apart at one step. The loss of step t is
therefore a mean over the last tenth of the t steps.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

from lmperf.axes import SIZE
from lmperf.benchmark import Axis, Case, Implementation, Observed, WrongResult, numbers, resolve
from lmperf.benchmarks.end_to_end import EndToEnd
from lmperf.transformer.rungs import RUNGS, Rung

STEPS = 100
SHOWN = (1, 10, STEPS)
LEARNING_RATE = 3e-4
# Of the steps of peers, which have float8 matmuls over bf16 weights.
_DTYPE_OF_PEERS = "bfloat16"


def _trained(rung: Rung) -> Implementation:
    """A rung as an implementation: the code of its implementation in `end_to_end`, in its dtype."""
    one = next(one for one in EndToEnd.implementations if one.name == rung.implementation)
    return replace(one, name=rung.name, options={"dtype": rung.dtype})


def _cells(sizes: list, context: int, batch: int, rungs: list) -> dict[str, list]:
    return {
        "size": sizes,
        "context_length": [context],
        "batch": [batch],
        "implementation": rungs,
    }


class LadderLoss(Observed):
    title = "The ladder's loss"
    section = "end_to_end"
    columns = numbers("step", "loss")
    stated = {"steps": STEPS, "learning_rate": LEARNING_RATE}
    axes = (
        SIZE,
        Axis("context_length", int),
        Axis("batch", int),
    )
    phases = ("train_step",)
    index = ("step",)
    limit_s = 300.0
    implementations = tuple(map(_trained, RUNGS))
    grids = {
        "cpu": [_cells(["tiny"], 128, 2, ["float32", "autocast", "bf16_weights"])],
        # On 4,096 tokens a step the loss of 0.13B falls steeply near step 100, and rounding alone
        # moved it by up to 54 %. On 256 tokens float32 and autocast are 0.3 % apart. Larger sizes
        # skip rungs that hardly change the loss. All runs take 3 minutes.
        "gpu": [
            _cells(["0.13B"], 128, 2, [rung.name for rung in RUNGS]),
            _cells(
                ["0.42B", "0.97B", "2.0B", "3.4B"],
                128,
                2,
                ["float32", "autocast", "fused_loss", "bf16_weights", "graph"],
            ),
        ],
    }
    head = {"gpu": [{"size": ["0.13B", "0.97B", "3.4B"], "implementation": ["float32", "graph"]}]}

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        from lmperf.compiler import require_compiler
        from lmperf.transformer.steps import step_maker
        from lmperf.transformer.training_loss import losses

        implementation = self.require(case, device)
        if implementation.compiles:
            require_compiler(device)
        cell = tuple(case.axes[axis.name] for axis in self.axes)
        options = {"dtype": _DTYPE_OF_PEERS, **implementation.options}
        maker, dtype = step_maker(resolve(implementation.entry)), options["dtype"]
        found = losses(maker, dtype, *cell, device, seed, STEPS, LEARNING_RATE)
        bad = next((step for step, loss in enumerate(found, 1) if not math.isfinite(loss)), None)
        if bad is not None:
            raise WrongResult(f"the loss of step {bad} is not finite")
        return [{"step": step, "loss": _of_last_tenth(found[:step])} for step in SHOWN]


def _of_last_tenth(losses: list[float]) -> float:
    """The mean of the last tenth of the losses, at least of one."""
    return statistics.fmean(losses[-max(1, len(losses) // 10) :])
