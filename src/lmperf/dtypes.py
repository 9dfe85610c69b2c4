"""The values of the `dtype` axis: how tensors are stored and how they are multiplied.

A dtype is added here and nowhere else. torch is not imported, because the configuration and the
report read this table too; `lmperf.precision` turns an entry into settings of torch.
"""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Dtype:
    """One value of the `dtype` axis.

    Attributes:
        words: the name in tables and sentences of the report.
        storage: the torch dtype of stored tensors, by name.
        matmul: the numerics in which matmuls multiply; their measured peak rate limits this dtype.
        autocast: the torch dtype, by name, to which `torch.autocast` casts; None: no autocast.
        more_exact: more accurate numerics that a library may use instead.
    """

    words: str
    storage: str
    matmul: str
    autocast: str | None = None
    more_exact: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of one stored element."""
        return _BYTES[self.storage]

    @property
    def meaning(self) -> list[str | None]:
        """The fields that decide what runs; the key of a row holds them instead of the name."""
        return [self.storage, self.matmul, self.autocast]


# In the order in which tables list them.
DTYPES = {
    "float32": Dtype("float32", "float32", "float32"),
    "tf32": Dtype("TF32", "float32", "tf32", more_exact=("float32",)),
    "float16": Dtype("float16", "float16", "float16", more_exact=("float32", "tf32")),
    "bfloat16": Dtype("bf16", "bfloat16", "bfloat16", more_exact=("float32", "tf32", "float16")),
    "autocast_float16": Dtype("float16 autocast", "float32", "float16", autocast="float16"),
    "autocast_bfloat16": Dtype("bf16 autocast", "float32", "bfloat16", autocast="bfloat16"),
}
# Dtypes for a single kernel, for a kernel without matmuls, and for a matmul alone.
PLAIN_DTYPES = tuple(name for name, dtype in DTYPES.items() if dtype.autocast is None)
STORED_DTYPES = tuple(name for name, dtype in DTYPES.items() if dtype.storage == name)
MATMULS = tuple(name for name, dtype in DTYPES.items() if dtype.matmul == name)
# Dtypes for a model with float32 weights; for a train step, which may have bf16 weights; and for
# models without TF32, which stores the same tensors.
MODEL_DTYPES = ("float32", "tf32", "autocast_bfloat16")
STEP_DTYPES = (*MODEL_DTYPES, "bfloat16")
MODEL_STORED_DTYPES = tuple(name for name in MODEL_DTYPES if name != "tf32")


def dtype_of(name: str) -> Dtype:
    """Return the entry of DTYPES with this name.

    Raises:
        ValueError: no dtype has this name.
    """
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}; known dtypes: {', '.join(DTYPES)}")
    return DTYPES[name]
