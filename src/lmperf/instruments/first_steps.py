"""Times the first training steps of a new process, one by one.

    python -m lmperf.instruments.first_steps 0.13B 256 4 float32 cuda 15

prints a JSON list with an object for each step: milliseconds of wall time of the step and of its
three parts, synchronized, and by how many MiB the memory reserved by the allocator grew.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from dataclasses import asdict

from lmperf.benchmark import Implementation

COLUMNS = ("step_ms", "forward_ms", "backward_ms", "optimizer_ms", "reserved_mib")
_MIB = 2**20
_LONGEST_S = 300


def measured(
    size: str,
    context: int,
    batch: int,
    dtype: str,
    device: str,
    steps: int,
    custom: Implementation | None = None,
) -> list[dict[str, float]]:
    """Run `main` in a new process; returns one row (with columns COLUMNS) for each step.

    custom: a custom model class, a function that runs the project's model, or an optimizer class.

    Raises:
        RuntimeError: the process failed; the message is the last line of its error output.
    """
    arguments = [
        size,
        str(context),
        str(batch),
        dtype,
        device,
        str(steps),
        *([json.dumps(asdict(custom))] if custom else []),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "lmperf.instruments.first_steps", *arguments],
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"the process that timed the first steps failed: {lines[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(
    size: str,
    context: str,
    batch: str,
    dtype: str,
    device: str,
    steps: str,
    custom: str = "",
) -> None:
    import torch

    from lmperf.measuring.clock import synchronizer
    from lmperf.own.kinds import MODEL
    from lmperf.own.model import runnable
    from lmperf.own.optimizer import plugged
    from lmperf.precision import precision
    from lmperf.transformer.implementations import eager
    from lmperf.transformer.model import TransformerLM
    from lmperf.transformer.sizes import SIZES, VOCAB_SIZE
    from lmperf.transformer.steps import step_maker
    from lmperf.transformer.training import train_step

    implementation = Implementation(**json.loads(custom)) if custom else Implementation("eager")
    given, build = plugged(implementation, MODEL.load(implementation) if custom else eager)
    maker = step_maker(given)
    widths = SIZES[size]
    torch.manual_seed(0)
    with torch.device(device):
        if build:
            model = build(widths, int(context)).to(device)
        else:
            model = TransformerLM.of_size(widths, VOCAB_SIZE, int(context))
        run = runnable(maker.way, model, implementation.to_compile)
        tokens, targets = torch.randint(VOCAB_SIZE, (2, int(batch), int(context)))
    optimizer = maker.prepare(dtype)(model, 1e-4)
    synchronize = synchronizer(device)
    rows = []
    with precision(dtype):
        for _ in range(int(steps)):
            reserved, ends = _reserved(device), {}

            def mark(part: str, ends: dict[str, float] = ends) -> None:
                synchronize()
                ends[part] = 1e3 * time.perf_counter()

            mark("start")
            train_step(run, optimizer, tokens, targets, dtype, mark)
            # The loss is part of the forward pass here, as it is if no logits are stored.
            ends["forward"] = ends.pop("loss", ends["forward"])
            moments = [ends[name] for name in ("start", "forward", "backward", "optimizer")]
            parts = [end - begin for begin, end in itertools.pairwise(moments)]
            values = [moments[-1] - moments[0], *parts, _reserved(device) - reserved]
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    print(json.dumps(rows))


def _reserved(device: str) -> float:
    import torch

    return torch.cuda.memory_reserved() / _MIB if device == "cuda" else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
