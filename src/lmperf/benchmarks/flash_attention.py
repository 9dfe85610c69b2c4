"""The benchmark of FlashAttention-2: our Triton kernels against SDPA, peers and plain attention.

Without a GPU, it times a tiled PyTorch version against plain attention and SDPA, and
`flash_attention_check` checks the Triton kernels under Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from lmperf.axes import dtype_axis
from lmperf.benchmark import (
    Axis,
    Case,
    Implementation,
    Timed,
    Trial,
    Unsupported,
    Value,
    Workload,
    grid,
    numbers,
    texts,
)
from lmperf.dtypes import PLAIN_DTYPES
from lmperf.gate import Gate
from lmperf.own.kinds import ATTENTION

_SHAPE = ("batch", "heads", "seq_len", "d_head")
_SDPA = "lmperf.attention.library:sdpa"
_HALF = {"dtype": ("float16", "bfloat16")}
_KERNELS = ("triton", "sdpa_cudnn", "sdpa_flash", "sdpa_efficient")
# The fused kernels that take float32.
_FLOAT32_KERNELS = ["triton", "sdpa_efficient"]

# Shapes (batch, heads, seq_len, d_head): a course's public leaderboard, and wider heads.
LEADERBOARD = (1, 16, 16384, 64)
OTHER_SHAPES = (LEADERBOARD, (4, 21, 4096, 96), (1, 16, 8192, 256))

# The widths of the models' heads, and the context of the ladder.
MODEL_WIDTHS, MODEL_LENGTH = (64, 80), 1024
_LENGTHS = [2**power for power in range(7, 17)]
_FEW_LENGTHS = [128, 1024, 4096, 16384, 65536]


_one_head = partial(grid, batch=1, heads=1, causal=True, cuda_graph=False)
_F1 = partial(_one_head, implementation=["eager", *_KERNELS])
_F1_FLOAT32 = partial(_one_head, dtype="float32", implementation=["eager", *_FLOAT32_KERNELS])
_graphs = partial(_one_head, dtype="bfloat16", cuda_graph=True, implementation=_KERNELS)


def _other(shape: tuple[int, int, int, int]) -> dict[str, list]:
    """The grid of one of OTHER_SHAPES: shape (batch, heads, seq_len, d_head), causal, bf16."""
    sizes = dict(zip(_SHAPE, shape, strict=True))
    names = ["triton", "sdpa_cudnn", "sdpa_flash"]
    return grid(**sizes, dtype="bfloat16", causal=True, cuda_graph=False, implementation=names)


def _filled(seq_len: int, d_head: int, dtypes: list[str], names: list[str]) -> dict[str, list]:
    """A grid of cells that fill a GPU: batch x seq_len is 16,384, heads x d_head nearly 2048."""
    return grid(
        batch=16384 // seq_len,
        heads=2048 // d_head,
        seq_len=seq_len,
        d_head=d_head,
        dtype=dtypes,
        causal=[True, False],
        cuda_graph=False,
        implementation=names,
    )


def _filled_grids(
    lengths: Iterable[int], dtypes: list[str], names: list[str], widths: Iterable[int] = (64, 128)
) -> list[dict[str, list]]:
    """The grids of `_filled` at some lengths and widths of a head."""
    return [_filled(seq_len, d_head, dtypes, names) for seq_len in lengths for d_head in widths]


def _part(seq_len: int, d_head: int) -> dict[str, list]:
    """The part of the grid with the causal bf16 cell of `_filled`."""
    cell = _filled(seq_len, d_head, ["bfloat16"], [])
    return {**{axis: cell[axis] for axis in (*_SHAPE, "dtype")}, "causal": [True]}


class FlashAttention(Timed):
    title = "FlashAttention"
    order = 50
    columns = (
        *numbers("error_out", "error_dq", "error_dk", "error_dv"),
        *texts("gluon", "gluon_fault"),
    )
    axes = (
        Axis("batch", int),
        Axis("heads", int),
        Axis("seq_len", int),
        Axis("d_head", int),
        dtype_axis(PLAIN_DTYPES),
        Axis("causal", bool),
        Axis("cuda_graph", bool),
    )
    together = ("dtype",)
    takes = ATTENTION
    phases = ("forward", "backward", "forward_backward")
    check = "flash_attention_check"
    implementations = (
        Implementation("eager", "lmperf.attention.reference:attention", tolerance="rounded_scores"),
        Implementation(
            "tiled", "lmperf.attention.tiled:tiled_attention", tolerance="rounded_scores"
        ),
        Implementation("triton", "lmperf.attention.triton:flash_attention", compiles=True),
        Implementation(
            "triton_deterministic",
            "lmperf.attention.deterministic:deterministic_attention",
            compiles=True,
            needs_cuda=True,
        ),
        Implementation("sdpa", _SDPA),
        Implementation("sdpa_cudnn", _SDPA, options={"backend": "CUDNN_ATTENTION"}, only=_HALF),
        Implementation("sdpa_flash", _SDPA, options={"backend": "FLASH_ATTENTION"}, only=_HALF),
        Implementation("sdpa_efficient", _SDPA, options={"backend": "EFFICIENT_ATTENTION"}),
        Implementation("flex", "lmperf.attention.library:flex", compiles=True),
    )
    stated = {
        "leaderboard": LEADERBOARD,
        "other_shapes": OTHER_SHAPES,
        "of_models": {"d_head": MODEL_WIDTHS, "seq_len": (MODEL_LENGTH,)},
    }
    grids = {
        "cpu": [
            _one_head(
                seq_len=[128, 512, 2048],
                d_head=64,
                dtype=["float32", "bfloat16"],
                implementation=["eager", "tiled", "sdpa"],
            )
        ],
        "gpu": [
            _F1(seq_len=_FEW_LENGTHS, d_head=[64, 128], dtype="bfloat16"),
            _F1_FLOAT32(seq_len=_FEW_LENGTHS, d_head=64),
            _graphs(seq_len=[128, 512], d_head=64),
            *_filled_grids(
                (1024, 4096, 16384),
                ["bfloat16"],
                ["eager", *_KERNELS, "flex"],
                (*MODEL_WIDTHS, 128),
            ),
            *_filled_grids((1024, 4096, 16384), ["bfloat16"], ["triton_deterministic"]),
            *_filled_grids((4096,), ["float32", "tf32"], _FLOAT32_KERNELS),
            *map(_other, OTHER_SHAPES),
        ],
        "full": [
            *_filled_grids((1024, 16384), ["float32", "tf32"], _FLOAT32_KERNELS),
            _F1(seq_len=_LENGTHS, d_head=[64, 128], dtype="bfloat16"),
            _F1_FLOAT32(seq_len=_LENGTHS, d_head=[64, 128]),
            # No model has such narrow heads, but the courses ask for them.
            _one_head(
                seq_len=_LENGTHS,
                d_head=[16, 32],
                dtype=["bfloat16", "float32"],
                implementation=["eager", "triton"],
            ),
            _graphs(seq_len=_LENGTHS[:4], d_head=[64, 128]),
        ],
    }

    head = {
        "cpu": [{"seq_len": [512]}],
        "gpu": [_part(MODEL_LENGTH, width) for width in MODEL_WIDTHS],
    }
    trials = {
        "cpu": Trial(beside=("sdpa",)),
        # Longer and wider than the models' heads, too. Both passes in one call would take long.
        "gpu": Trial(
            beside=("flash_attention_4", "sdpa_cudnn", "sdpa_flash", "triton"),
            phases=("forward", "backward"),
            more=(_part(4096, 128),),
        ),
    }
    repeated = {
        "cpu": [{"seq_len": [2048], "dtype": ["bfloat16"], "implementation": ["tiled", "sdpa"]}],
        "gpu": [
            {
                **{axis: grid[axis] for axis in (*_SHAPE, "dtype", "implementation")},
                "causal": [True],
            }
            for grid in _filled_grids(
                (1024, 16384), ["bfloat16"], ["triton", "sdpa_cudnn", "flash_attention_4"]
            )
        ],
    }

    def phases_of(self, case: Case) -> tuple[str, ...]:
        """Each pass; of several heads, both in one call as well."""
        several = case.axes["heads"] > 1
        return tuple(phase for phase in self.phases if several or phase != "forward_backward")

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Time the 16-bit cells of several heads apart from those of float32.

        No table compares them, and a float32 cell of the longest length takes a minute.
        """
        found = []
        for group in super().groups(cases):
            several = group[0].axes["heads"] > 1
            half = [case for case in group if several and case.axes["dtype"] in _HALF["dtype"]]
            found += [half, [case for case in group if case not in half]]
        return [group for group in found if group]

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> bool:
        """SDPA efficient does not use TF32: its rows would be float32."""
        return axes["dtype"] == "tf32" and implementation == "sdpa_efficient"

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.attention.problem import AttentionProblem
        from lmperf.own.attention import Fitted

        axes, implementation = case.axes, self.require(case, device)
        if axes["dtype"] not in implementation.only.get("dtype", PLAIN_DTYPES):
            raise Unsupported(f"takes {' and '.join(implementation.only['dtype'])} only")
        if axes["cuda_graph"] and device != "cuda":
            raise Unsupported("CUDA graphs need a CUDA device")
        shape = tuple(axes[name] for name in _SHAPE)
        problem = AttentionProblem.of(shape, axes["dtype"], axes["causal"], device, seed, shared)
        function = self.callable_of(implementation.name)
        if implementation.origin != "project":
            function = Fitted(function)
        work = problem.workload(
            function,
            self.phases,
            implementation.compiles,
            implementation.tolerance,
            axes["cuda_graph"],
        )
        return _with_gluon(work) if implementation.name == "triton" else work


def _with_gluon(work: Workload) -> Workload:
    """The workload; its gate adds which passes ran in Gluon, and why others did not."""
    from lmperf.attention import gluon

    gate, since = work.gate, gluon.CALLS.copy()

    def counted(present: list[str]) -> Gate:
        found = gate(present)
        work.columns |= gluon.columns(since)
        return found

    work.gate = counted
    return work
