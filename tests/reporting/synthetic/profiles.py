"""Make rows of profiles: a few kernels of each class, with times from a simple model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from synthetic.builder import PHASE_COST, SIZES, Builder

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize{}_stage3_execute_kernel__5x_cublas"
ATEN = "void at::native::{}_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul> >(int)"
# Kernel -> milliseconds of a float32 forward pass with a billion parameters.
DEVICE = {
    GEMM.format("128x128x8"): 60.0,
    GEMM.format("64x64x8"): 20.0,
    ATEN.format("vectorized", "BinaryFunctor<float, MulFunctor<float> >"): 6.0,
    ATEN.format("vectorized", "BinaryFunctor<c10::BFloat16, MulFunctor<float> >"): 3.0,
    ATEN.format("unrolled", "direct_copy_kernel_cuda(Iterator&)"): 3.0,
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9>(float*)": 2.0,
    "Memcpy DtoD (Device -> Device)": 0.5,
    **{ATEN.format("unrolled", f"CUDAFunctor_add<float, {i}>"): 0.1 for i in range(8)},
}
HOST = {"aten::mm": 60.0, "aten::mul": 25.0, "aten::_softmax": 10.0, "aten::copy_": 5.0}
ADAM = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)"
FUSED = {
    "triton_per_fused__softmax__to_copy_masked_fill_3": 2.0,
    "triton_poi_fused__to_copy_t_8": 1,
}
TRITON = {"forward_kernel": 1.0}
PARTS = {"scores": (0.36, 0.49), "softmax": (0.41, 0.02), "values": (0.23, 0.49)}


def profiles(build: Builder, sizes: Sequence[str], runs: Mapping, device: bool) -> pd.DataFrame:
    """Rows of the kernels (``device``) or operators of every size, run and phase.

    runs: (dtype, implementation) -> speed of matmuls relative to float32.
    """
    rows = []
    for size in sizes:
        for (dtype, name), speed in runs.items():
            cell = {"size": size, "context_length": 512, "batch": 4, "dtype": dtype}
            for phase, cost in PHASE_COST.items():
                case = {**cell, "implementation": name, "phase": phase, "status": "ok"}
                times = kernels_of(name, speed, phase, device)
                scale = cost * SIZES[size][0] / 1e9
                found = [_row(build, n, ms * scale) for n, ms in times.items()]
                wall = sum(row["total_ms"] for row in found) * (1.02 if speed == 1 else 1.4)
                if name == "eager" and phase == "forward":
                    found += parts(scale, speed)
                trace = f"{size}-512-4-{dtype}-{name}-{phase}.json.gz"
                rows += [{**case, **row, "wall_ms": wall, "trace": trace} for row in found]
    return pd.DataFrame(rows)


def kernels_of(name: str, speed: float, phase: str, device: bool) -> dict[str, float]:
    """Kernel or operator -> milliseconds of a forward pass with a billion parameters."""
    times = dict(DEVICE if device else HOST)
    first = list(times)[:2] if device else list(times)[:1]
    times |= {matmul: times[matmul] / speed for matmul in first}
    if name != "eager":
        more = TRITON if name == "triton" else FUSED
        times = {**{matmul: times[matmul] for matmul in first}, **more}
    if phase == "train_step":
        times[ADAM if device else "aten::_fused_adamw_"] = 1.5
    return times


def parts(scale: float, speed: float) -> list[dict]:
    """Rows of the parts of attention: scores, softmax and values.

    scale: milliseconds per unit of PARTS.
    speed: of matmuls; the softmax does not get faster.
    """
    return [
        {
            "table": "attention",
            "name": name,
            "total_ms": scale * time / (1 if name == "softmax" else speed),
            "flops_share": flops,
        }
        for name, (time, flops) in PARTS.items()
    ]


def _row(build: Builder, name: str, ms: float) -> dict:
    instances = build.random.randint(10, 100)
    each = 1e3 * ms / instances
    return {
        "table": "kernel",
        "name": name,
        "instances": instances,
        "total_ms": ms,
        "median_us": each,
        "min_us": 0.8 * each,
        "max_us": 1.3 * each,
        "std_us": 0.1 * each,
    }


GPU_RUNS = {
    ("float32", "eager"): 1,
    ("autocast_bfloat16", "eager"): 8,
    ("autocast_bfloat16", "compiled_blocks"): 8,
    ("autocast_bfloat16", "triton"): 8,
}


def gpu(build: Builder) -> pd.DataFrame:
    return profiles(build, ("small", "large", "3.4B"), GPU_RUNS, device=True)


def cpu(build: Builder) -> pd.DataFrame:
    return profiles(build, ("tiny",), {("float32", "eager"): 1}, device=False)
