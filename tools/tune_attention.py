"""Search for tile sizes on a GPU.

    python tools/tune_attention.py --dtype bfloat16 --csv variants.csv

Compiles and checks every variant in parallel processes and drops those that exceed `error_bound`
against float64. Then times the remaining ones, one at a time, on a grid that fills the device (16k
tokens, 2048 channels, n = 4096) and on one head of n = 4096, split into chunks.
`kernel_ratios.py` compares the configured kernels with cuDNN.
"""

import argparse
import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pandas as pd
import torch
from timing import median_ms

from lmperf.attention.triton import forward as forward_pass
from lmperf.attention.triton.autotune import fault_of, inputs
from lmperf.attention.triton.configurations import Configuration
from lmperf.attention.triton.key_gradients import KEY_GRADIENTS
from lmperf.attention.triton.launch import Form
from lmperf.attention.triton.operands import Delta
from lmperf.attention.triton.query_gradients import QUERY_GRADIENTS
from lmperf.attention.triton.selection import SHORTEST_CHUNK, in_chunks
from lmperf.attention.triton.tiles import padded
from lmperf.precision import precision, storage_dtype

KERNELS = {each.name: each for each in (forward_pass.FORWARD, KEY_GRADIENTS, QUERY_GRADIENTS)}

SHARED_MEMORY_BYTES = 227 * 1024
DTYPES = ("float32", "tf32", "float16", "bfloat16")
COLUMNS = ("ms_causal", "ms_full", "ms_small")


def variants(kernel: str, dtype: str, d: int) -> list[Configuration]:
    """Configurations whose accumulators fit the registers and whose tiles fit shared memory."""
    half, width = storage_dtype(dtype).itemsize == 2, padded(d)
    halves = dtype == "float32"
    owned = (64, 128) if half or width < 128 else (32, 64, 128)
    walked = (32, 64, 128) if half or (halves and width < 256) else (16, 32, 64)
    stages = (2, 3) if half or (halves and kernel != "key_gradients") else (1, 2)
    found = []
    for own, walk, warps, depth in itertools.product(owned, walked, (4, 8), stages):
        # Two warp groups on 64 rows: needed for wide heads, but miscompiled by Triton for float32.
        if own < 16 * warps and not (dtype != "tf32" and width == 256 and own == 8 * warps):
            continue
        accumulators = {
            "forward": own * (width + walk),
            "key_gradients": 2 * own * (width + walk),
            "query_gradients": own * (width + 2 * walk),
        }[kernel] + halves * own * width
        resident = own * width * (1 if kernel == "forward" else 2)
        shared = (resident + depth * 2 * walk * width) * storage_dtype(dtype).itemsize
        if accumulators / (32 * warps) > (260 if halves else 200) or shared > SHARED_MEMORY_BYTES:
            continue
        m, n = (walk, own) if kernel == "key_gradients" else (own, walk)
        found.append(Configuration(m, n, warps, depth))
    return found


def check_variant(kernel: str, dtype: str, d: int, causal: bool, c: Configuration) -> str | None:
    """`autotune.fault_of` for a kernel by its name, which a process pool can pickle."""
    with precision(dtype):
        return fault_of(KERNELS[kernel], dtype, d, causal, c)


def check_all(tasks: list[tuple], processes: int) -> dict[tuple, str]:
    """`check_variant` of every task; repeated in a new process if its CUDA context was lost."""
    faults = {}
    while pending := [task for task in tasks if task not in faults]:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            results = pool.map(check_variant, *zip(*pending, strict=True))
            answered = zip(pending, results, strict=True)
            faults |= {task: fault for task, fault in answered if fault is not None}
    return faults


def search(dtypes: list[str], widths: list[int], processes: int) -> list[dict]:
    """Check and time all variants: a row each, with ms_causal, ms_full and ms_small."""
    tasks = [
        (kernel, dtype, d, causal, replace(c, chunk=chunk))
        for dtype in dtypes
        for d in widths
        for kernel in KERNELS
        for c in variants(kernel, dtype, d)
        for causal, chunk in ((True, 0), (False, 0), (True, SHORTEST_CHUNK))
    ]
    faults = check_all(tasks, processes)
    for task, fault in faults.items():
        if fault and not fault.startswith("OutOfResources"):
            print(*task, fault, sep="; ")
    return [
        row
        for dtype in dtypes
        for d in widths
        for row in _timed_group(dtype, d, {t: f for t, f in faults.items() if t[1:3] == (dtype, d)})
    ]


def _timed_group(dtype: str, d: int, faults: dict[tuple, str]) -> list[dict]:
    rows = {}
    for (kernel, _, _, _, c), fault in faults.items():
        c = replace(c, chunk=0)
        row = rows.setdefault((kernel, c), {"kernel": kernel, "dtype": dtype, "d_head": d})
        row |= vars(c) | {"fault": row.get("fault") or fault}
    batch = 4 if storage_dtype(dtype).itemsize == 2 else 1
    grids = [
        ("ms_causal", batch, 2048 // d, 4096, True),
        ("ms_full", batch, 2048 // d, 4096, False),
        ("ms_small", 1, 1, 4096, True),
    ]
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for column, b, h, n, causal in grids:
        x = inputs(b, h, n, d, dtype)
        with precision(dtype):
            out, lse = forward_pass.forward(*x[:3], causal, d**-0.5)
            delta = Delta(Form.of(out), Form.of(x[3]))(out, x[3])
            for (kernel, c), row in rows.items():
                if not row["fault"]:
                    split = in_chunks(c, kernel, causal, n, n, b * h, sms)
                    call = KERNELS[kernel].prepare(x, lse, delta, causal, split)
                    row[column] = median_ms([call])[0]
    return list(rows.values())


def print_best(rows: list[dict], top: int) -> None:
    """Print the best variants of each kernel, dtype and width, by each of the three times."""
    for (dtype, d, kernel), group in itertools.groupby(rows, key=_group):
        good = [r for r in group if not r["fault"]]
        print(f"{dtype} d {d} {kernel}: {len(good)} variants")
        for column in COLUMNS:
            best = sorted(good, key=lambda r: r[column])[:top]
            found = "  ".join(f"{_shape(r)} {r[column]:.3f}" for r in best)
            print(f"  {column:10} {found}")


def print_table(rows: list[dict]) -> None:
    """Print the fastest variants as lines for `configurations.py`."""
    for (dtype, d, kernel), group in itertools.groupby(rows, key=_group):
        good = [r for r in group if not r["fault"]]
        precision_class = "half" if storage_dtype(dtype).itemsize == 2 else dtype
        best = (_shape(min(good, key=lambda r: r[column])) for column in COLUMNS)
        print(f'    ("{kernel}", "{precision_class}", {d}): ({", ".join(f"_c{b}" for b in best)}),')


def _group(row: dict) -> tuple[str, int, str]:
    return row["dtype"], row["d_head"], row["kernel"]


def _shape(row: dict) -> tuple[int, int, int, int]:
    return row["block_m"], row["block_n"], row["num_warps"], row["num_stages"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", nargs="+", default=["bfloat16"], choices=DTYPES)
    parser.add_argument("--d", nargs="+", type=int, default=[16, 32, 64, 128, 256])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--top", type=int, default=4)
    parser.add_argument("--csv", required=True, help="where to write every row")
    arguments = parser.parse_args()
    rows = search(arguments.dtype, arguments.d, arguments.processes)
    print_best(rows, arguments.top)
    print_table(rows)
    pd.DataFrame(rows).to_csv(arguments.csv, index=False)


if __name__ == "__main__":
    main()
