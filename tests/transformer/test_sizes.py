import subprocess
import sys

import pytest

from lmperf.transformer.sizes import SIZES, ModelSize


def test_head_widths_of_the_table():
    d_heads = {name: size.d_head for name, size in SIZES.items()}
    assert d_heads == dict.fromkeys(("tiny", "small", "medium", "large", "xl"), 64) | {"2.7B": 80}


@pytest.mark.parametrize("d_model, num_heads, says", [(30, 4, "not divisible"), (12, 4, "is odd")])
def test_impossible_heads_are_refused(d_model, num_heads, says):
    with pytest.raises(ValueError, match=says):
        ModelSize(d_model, 8, 1, num_heads)


def test_sizes_and_flops_import_no_torch():
    code = (
        "import sys, lmperf.transformer, lmperf.transformer.flops; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
