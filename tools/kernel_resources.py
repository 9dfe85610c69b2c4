"""Compile the attention kernels for an H100 without a GPU, and list their registers and memory.

    python tools/kernel_resources.py          # writes docs/kernels.md
    python tools/kernel_resources.py --few    # prints the lines of a few kernels in Gluon

The launches are planned as on an H100, for tensors without memory. Instead of launching a kernel,
`JITFunction.warmup` compiles it, with the assembler that Triton brings along.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from tabulate import tabulate
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from lmperf.attention.triton import hopper_forward
from lmperf.attention.triton.backward import Backward
from lmperf.attention.triton.configurations import FUSED
from lmperf.attention.triton.forward import Forward
from lmperf.attention.triton.hopper_backward import WIDEST_ORDERED, Fused
from lmperf.attention.triton.launch import Form, Launch
from lmperf.attention.triton.tiles import padded

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
BATCH, LENGTH, CHANNELS, SMS = 4, 4096, 2048, 132
MASKS = {True: "causal", False: "full"}
HEADS = (
    *("kernel", "dtype", "d_head", "mask", "tile", "stages", "warps"),
    *("registers", "spilled bytes", "shared KiB"),
)
# Hash of a compiled kernel -> what ptxas said of it.
LOGS: dict[str, str] = {}
INTRODUCTION = f"""# Registers and memory of the attention kernels

`python tools/kernel_resources.py` writes this table: it compiles the kernels for an H100 (sm_90), without a GPU, under Triton {{version}}.
The tensors are those of the filled grid: {BATCH} x {CHANNELS} / d_head x {LENGTH} x d_head. A tile is queries x keys, or rows.

Registers are those of a thread as ptxas assigns them; in the warp-specialised kernels (12 warps or more), warp groups then exchange some. Spilled bytes are those that a
thread stores to memory for lack of registers. An SM has 65,536 registers, and 227 KiB of shared memory for its programs. Times beside cuDNN's: `python tools/kernel_ratios.py`, on a GPU.

"""  # noqa: E501


class H100:
    """What Triton asks of a driver in order to compile."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def gluon(d: int, causal: bool) -> Iterator[tuple]:
    """Cells of the kernels that are used for bf16 on a Hopper GPU."""
    q, k, v, out, grad_out, lse = tensors(d, torch.bfloat16)
    scale = d**-0.5
    run = hopper_forward.Forward(form(q), form(k), causal, scale)
    yield from lines_of(causal, run, q, k, v)
    forms = [form(x) for x in (q, k, out, grad_out)]
    for deterministic in (False, True) if d <= WIDEST_ORDERED else (False,):
        run = Fused(*forms, False, causal, scale, FUSED[padded(d)], deterministic)
        yield from lines_of(causal, run, q, k, v, out, lse, grad_out, None)


def portable(d: int, causal: bool, dtype: torch.dtype) -> Iterator[tuple]:
    """Cells of the kernels in Triton's own language."""
    q, k, v, out, grad_out, lse = tensors(d, dtype)
    scale = d**-0.5
    run = Forward(*map(form, (q, k, v)), causal, scale, "ieee", None)
    yield from lines_of(causal, run, q, k, v)
    forms = map(form, (q, k, v, out, grad_out))
    run = Backward(*forms, causal, scale, "ieee")
    yield from lines_of(causal, run, q, k, v, out, lse, grad_out, None)


def tensors(d: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k, v, out, dO and the logsumexp, without memory."""
    shape = (BATCH, CHANNELS // d, LENGTH)
    found = [torch.empty(*shape, d, dtype=dtype, device="meta") for _ in range(5)]
    return [*found, torch.empty(shape, device="meta")]


def form(x: torch.Tensor) -> Form:
    return Form.of(x)._replace(device=torch.device("cuda", 0))


def lines_of(causal: bool, run: Callable, *arguments: Any) -> list[tuple]:
    """The cells of a line of the table for each kernel that a pass launches."""
    found = []

    def compiled(launch: Launch, *values: Any) -> None:
        log = StringIO()
        with redirect_stdout(log):
            kernel = launch.compiled(*values)
        # ptxas is silent about a kernel that was compiled before.
        said = LOGS.setdefault(kernel.hash, log.getvalue())
        named = launch.named
        language = "Gluon" if launch.kernel.is_gluon() else "Triton"
        tile = [named[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK") if name in named]
        if "CONSUMERS" in named:
            tile.insert(0, hopper_forward.ROWS * named["CONSUMERS"])
        found.append(
            (
                f"{launch.kernel.__name__} ({language})",
                str(arguments[0].dtype).removeprefix("torch."),
                arguments[0].shape[-1],
                MASKS[causal] if "CAUSAL" in named else "",
                " x ".join(map(str, tile)),
                named.get("STAGES") or named.get("num_stages"),
                kernel.metadata.num_warps,
                int(re.search(r"Used (\d+) registers", said)[1]),
                int(re.search(r"(\d+) bytes spill stores", said)[1]),
                round(kernel.metadata.shared / 1024, 1),
            )
        )

    with patch.object(Launch, "__call__", compiled):
        run(*arguments)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--few", action="store_true", help="print the lines of a few in Gluon")
    few = parser.parse_args().few
    driver.set_active(H100())
    properties = SimpleNamespace(major=9, multi_processor_count=SMS)
    with (
        tempfile.TemporaryDirectory() as cache,
        patch.object(torch.cuda, "get_device_properties", lambda device: properties),
        patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)),
    ):
        triton.knobs.cache.dir = cache
        triton.knobs.nvidia.dump_ptxas_log = True
        if few:
            found = [*gluon(128, True)]
        else:
            found = [line for d in (64, 128, 256) for mask in MASKS for line in gluon(d, mask)]
            for dtype in (torch.bfloat16, torch.float32):
                found += [line for d in (64, 128) for line in portable(d, True, dtype)]
    lines = list(dict.fromkeys(found))
    table = tabulate(lines, HEADS, "pipe", missingval="")
    if few:
        print(table)
    else:
        _, heading, by_hand = PAGE.read_text().partition("\n## ")
        introduction = INTRODUCTION.format(version=triton.__version__)
        PAGE.write_text(introduction + table + "\n" + heading + by_hand)


if __name__ == "__main__":
    main()
