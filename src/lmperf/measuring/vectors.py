"""Finds CPUs for which PyTorch compiles wrong code, and has it use narrower vectors there.

On Intel CPUs with AVX-512, code that PyTorch 2.13.0 compiles of a projection, RoPE and scores under
bf16 autocast returns a gradient of which half is NaN. With vectors of 256 bits it is right. A CPU
does not tell, so one such gradient is computed.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from pathlib import Path

import torch
from torch import Tensor

from lmperf.measuring.probe import probed

BITS = 256
_HEADS, _WIDTH, _LENGTH = 4, 64, 128
_CODE = "from lmperf.measuring.vectors import finite_share; print(finite_share())"


def narrow() -> bool:
    """Have code that this process compiles for the CPU use vectors of BITS bits, if the default is
    wrong; whether it is. Known of a version of PyTorch and a CPU once it was tried.
    """
    tried = hashlib.sha256(f"{torch.__version__} {_processor()}".encode()).hexdigest()[:16]
    if probed(f"vectors-{tried}", _CODE) == 1.0:
        return False
    from torch._inductor import config

    config.cpp.simdlen = BITS
    return True


def bits() -> int | None:
    """The bits of the vectors of compiled code; None: PyTorch decides."""
    config = sys.modules.get("torch._inductor.config")
    return config.cpp.simdlen if config else None


def _processor() -> str:
    """The name and the instructions of the processor."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else platform.processor()
    return " ".join(dict.fromkeys(re.findall(r"^(?:model name|flags)\s*: (.*)$", text, re.M)))


def finite_share() -> float:
    """The share of a compiled gradient that is finite; 1 if no vector here has more than BITS."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return 1.0
    torch.manual_seed(0)
    x = torch.randn(4, _LENGTH, _HEADS * _WIDTH)
    rates = 10000 ** -(torch.arange(0, _WIDTH, 2) / _WIDTH)
    angles = torch.outer(torch.arange(_LENGTH), rates)
    weight = (torch.randn(2 * _HEADS * _WIDTH, _HEADS * _WIDTH) / 16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = torch.compile(_scores)(x, weight, angles.cos(), angles.sin())
    scores.float().square().mean().backward()
    return torch.isfinite(weight.grad).float().mean().item()


def _scores(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    q, k = (x @ weight.T).unflatten(-1, (2, _HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return _rotated(q, cos, sin) @ _rotated(k, cos, sin).mT


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)
