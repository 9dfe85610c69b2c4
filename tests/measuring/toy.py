"""A small benchmark of steps that are also timed back to back; some implementations are wrong."""

from __future__ import annotations

from collections import Counter

import torch

from lmperf.benchmark import Axis, Implementation, Phase, Timed, Workload
from lmperf.gate import Gate

# Calls after which `wrong_later` returns a wrong result: more than all rounds have.
WRONG_AFTER = 1000
CALLS: Counter[str] = Counter()


class Toy(Timed):
    title = "Toy"
    axes = (Axis("size", int), Axis("dtype", str, ("float32",)))
    grids = {"cpu": [{"size": [8], "dtype": ["float32"], "implementation": ["right", "other"]}]}
    implementations = tuple(map(Implementation, ("right", "other", "wrong_later")))
    clock = "step"

    def sustains(self, case, phase):
        return case.implementation != "other"

    def prepare(self, case, device, seed, shared):
        inputs = torch.zeros(case.axes["size"])

        def freshen(seed):
            inputs.fill_(1 + seed % 1000)

        def run(_):
            CALLS[case.implementation] += 1
            wrong = case.implementation == "wrong_later" and CALLS["wrong_later"] > WRONG_AFTER
            return inputs * (3 if wrong else 2)

        def check(phase, result):
            return Gate({"out": (result - 2 * inputs).abs().max().item()}, {"out": 0.5})

        return Workload({"forward": Phase(run)}, freshen=freshen, check=check)
