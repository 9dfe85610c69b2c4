"""End to end: forward, backward, both, and a whole training step of Transformer language models."""

from __future__ import annotations

from functools import partial

from lmperf.benchmark import Axis, Case, Timed, Unsupported, Workload, numbers

_SIZES = ("tiny", "small", "medium", "large", "xl", "2.7B")
_DTYPES = ("float32", "tf32", "autocast_bfloat16")
_COMPILED = ("compiled", "compiled_blocks", "triton_compiled_blocks")
_TRITON = ("triton", "triton_compiled_blocks")


class EndToEnd(Timed):
    title = "End to end"
    order = 10
    columns = numbers(
        "parameters", "tokens", "error_logits", "error_loss", "error_dqkv", "error_dnorm"
    )
    axes = (
        Axis("size", str, _SIZES),
        Axis("context_length", int),
        Axis("batch", int),
        Axis("dtype", str, _DTYPES),
    )
    together = ("dtype",)
    phases = ("forward", "backward", "forward_backward", "train_step")
    clock = "step"
    limit_s = 600.0
    implementations = {
        "eager": "lmperf.transformer.implementations:eager",
        "compiled": "lmperf.transformer.implementations:compiled",
        "compiled_blocks": "lmperf.transformer.implementations:compiled_blocks",
        "sdpa": "lmperf.transformer.implementations:sdpa",
        "triton": "lmperf.transformer.implementations:triton",
        "triton_compiled_blocks": "lmperf.transformer.implementations:triton_compiled_blocks",
    }
    grids = {
        "cpu": [
            {
                "size": ["tiny"],
                "context_length": [128, 256],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["eager"],
            },
            {
                "size": ["tiny"],
                "context_length": [128],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["compiled"],
            },
            {
                "size": ["small"],
                "context_length": [128],
                "batch": [1],
                "dtype": ["float32"],
                "implementation": ["eager"],
            },
        ],
        "gpu": [
            {
                "size": list(_SIZES[1:]),
                "context_length": [128, 256, 512, 1024],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["eager", "compiled_blocks"],
            },
            # Other attentions inside the model, where attention weighs most.
            {
                "size": list(_SIZES[1:]),
                "context_length": [1024],
                "batch": [4],
                "dtype": ["autocast_bfloat16"],
                "implementation": ["sdpa", "triton"],
            },
            {
                "size": list(_SIZES[1:]),
                "context_length": [256],
                "batch": [4],
                "dtype": ["tf32"],
                "implementation": ["eager"],
            },
            # Compiling a whole model costs a minute or more where there are many layers.
            {
                "size": ["small"],
                "context_length": [256],
                "batch": [4],
                "dtype": ["float32", "tf32", "autocast_bfloat16"],
                "implementation": ["compiled"],
            },
            {
                "size": ["medium"],
                "context_length": [256],
                "batch": [4],
                "dtype": ["float32", "autocast_bfloat16"],
                "implementation": ["compiled"],
            },
            {
                "size": ["xl", "2.7B"],
                "context_length": [256],
                "batch": [4],
                "dtype": ["autocast_bfloat16"],
                "implementation": ["compiled"],
            },
        ],
    }

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        from lmperf.compiler import require_compiler
        from lmperf.precision import precision
        from lmperf.transformer.problem import ModelProblem

        axes = case.axes
        size, context, batch, dtype = (axes[axis.name] for axis in self.axes)
        compiles = case.implementation in _COMPILED
        if compiles:
            require_compiler(device)
        if case.implementation in _TRITON and device != "cuda":
            raise Unsupported("the Triton kernel needs a CUDA device")
        if "problem" not in shared:
            shared["problem"] = ModelProblem(size, context, batch, device, seed)
        problem: ModelProblem = shared["problem"]
        model = self.callable_of(case.implementation)(problem.model)
        return Workload(
            problem.phases(model, dtype),
            gate=lambda phases: problem.gate(model, dtype, phases),
            resident=problem.resident,
            compiles=compiles or case.implementation in _TRITON,
            context=partial(precision, dtype),
            columns={"parameters": problem.parameters, "tokens": batch * context},
        )
