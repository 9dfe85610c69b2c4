"""Search for tile sizes on a GPU, or compare the configured kernels with SDPA.

    python tools/tune_attention.py search --dtype bfloat16 --csv variants.csv
    python tools/tune_attention.py compare --csv peers.csv

`search` compiles and checks every variant in parallel processes and drops those that exceed
`error_bound` against float64. It then times the remaining ones, one at a time, on a grid that fills
the device (16k tokens, 2048 channels, n = 4096) and on one head of n = 4096, split into chunks.
`compare` times `flash_attention` as configured interleaved with the backends of SDPA and prints
their time over ours.
"""

import argparse
import csv
import itertools
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import torch
from timing import median_ms

from lmperf.attention.library import sdpa
from lmperf.attention.reference import flops
from lmperf.attention.triton import flash_attention
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
PEERS = {
    "sdpa_cudnn": "CUDNN_ATTENTION",
    "sdpa_flash": "FLASH_ATTENTION",
    "sdpa_efficient": "EFFICIENT_ATTENTION",
}


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


def compare(dtypes: list[str], widths: list[int], processes: int) -> list[dict]:
    """Time `flash_attention` and SDPA's backends interleaved; print each cell when it is done."""
    cells = [
        (16384 // n, 2048 // d, n, d, dtype, causal)
        for dtype, d, causal in itertools.product(dtypes, widths, (True, False))
        for n in (1024, 4096, 16384)
        if d in (64, 128)
    ]
    for dtype, d, n in itertools.product(dtypes, widths, (2048, 8192, 32768)):
        cells.append((1, 1, n, d, dtype, True))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(_compile_cell, *zip(*cells, strict=True)))
    rows = []
    for cell in cells:
        compared = _compared(*cell)
        print_ratios(compared)
        rows += compared
    return rows


def _compile_cell(b: int, h: int, n: int, d: int, dtype: str, causal: bool) -> None:
    """Compile the kernels of a cell into Triton's cache on disk."""
    *qkv, grad_out = inputs(b, h, n, d, dtype)
    leaves = [t.requires_grad_() for t in qkv]
    with precision(dtype):
        _backward(flash_attention(*leaves, causal), leaves, grad_out)()
    torch.cuda.synchronize()


def _compared(b: int, h: int, n: int, d: int, dtype: str, causal: bool) -> list[dict]:
    *qkv, grad_out = inputs(b, h, n, d, dtype)
    leaves = [t.requires_grad_() for t in qkv]
    forwards = {"triton": lambda: flash_attention(*leaves, causal)}
    for name, backend in PEERS.items():
        if name == "sdpa_efficient" or storage_dtype(dtype).itemsize == 2:
            forwards[name] = partial(sdpa, *leaves, causal, backend=backend)
    cell = {"batch": b, "heads": h, "seq_len": n, "d_head": d, "dtype": dtype, "causal": causal}
    rows = []
    with precision(dtype):
        backwards = {name: _backward(call(), leaves, grad_out) for name, call in forwards.items()}
        for phase, calls in (("forward", forwards), ("backward", backwards)):
            work = flops(b, h, n, d, causal, phase)
            for name, ms in zip(calls, median_ms(list(calls.values())), strict=True):
                measured = {"implementation": name, "ms": ms, "tflops": work / ms / 1e9}
                rows.append(cell | {"phase": phase} | measured)
    return rows


def _backward(out: torch.Tensor, leaves: list[torch.Tensor], grad_out: torch.Tensor) -> partial:
    return partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)


def print_ratios(rows: list[dict]) -> None:
    """Print our time, and SDPA's time over ours (above 1: ours is faster)."""
    axes = ("dtype", "batch", "heads", "seq_len", "d_head", "causal", "phase")
    for cell, group in itertools.groupby(rows, key=lambda r: tuple(r[a] for a in axes)):
        ours, *peers = group
        ratios = "  ".join(f"{p['implementation']} {p['ms'] / ours['ms']:.2f}" for p in peers)
        label = " ".join(f"{value!s:>8}" for value in cell)
        print(f"{label}  {ours['ms']:8.3f} ms {ours['tflops']:4.0f} TFLOP/s  {ratios}", flush=True)


def write_csv(path: str, rows: list[dict]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("search", "compare"))
    parser.add_argument("--dtype", nargs="+", default=["bfloat16"], choices=DTYPES)
    parser.add_argument("--d", nargs="+", type=int, default=[16, 32, 64, 128, 256])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--top", type=int, default=4)
    parser.add_argument("--csv", required=True, help="where to write every row")
    arguments = parser.parse_args()
    if arguments.task == "search":
        rows = search(arguments.dtype, arguments.d, arguments.processes)
        print_best(rows, arguments.top)
        print_table(rows)
    else:
        rows = compare(arguments.dtype, arguments.d, arguments.processes)
    write_csv(arguments.csv, rows)


if __name__ == "__main__":
    main()
