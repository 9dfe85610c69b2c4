"""The Hopper kernels compile without a GPU, and docs/kernels.md lists what they need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernels.md").read_text()


def cells(table):
    """The cells of each line of Markdown tables."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


@pytest.mark.process
@pytest.mark.slow
def test_gluon_kernels_compile_and_need_what_the_page_says():
    # Not under Triton's interpreter, which this process may use.
    environment = {key: of for key, of in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, ROOT / "tools" / "kernel_resources.py", "--few"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    _, _, *found = cells(done.stdout)
    names = {name.split()[0] for _, name, *_ in found}
    assert names == {"forward_kernel", "prepare_kernel", "fused_kernel", "finish_kernel"}
    # Another version compiles to other registers.
    if f"under Triton {triton.__version__}." in PAGE:
        assert set(found) <= set(cells(PAGE))
