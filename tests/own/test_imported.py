"""How the user's functions and classes are imported."""

import torch

from lmperf.own.imported import imported

MODULE = """
from torch.cuda import nvtx

@nvtx.range("attention")
def attention():
    with nvtx.range("softmax"):
        nvtx.mark("here")
        nvtx.range_end(nvtx.range_start("values"))
        return 7
"""


def test_ranges_of_nvtx_need_no_cuda(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", torch.cuda.nvtx._nvtx)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "with_ranges.py").write_text(MODULE)
    assert imported("with_ranges:attention")() == 7
