"""The values of the `dtype` axis: how tensors are stored and how they are multiplied.

A dtype is added here and nowhere else. No torch is imported: the configuration and the report read
this table too; `lmperf.precision` turns it into settings of torch.
"""

from __future__ import annotations

from dataclasses import dataclass

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Dtype:
    """One value of the `dtype` axis.

    Attributes:
        words: its name in tables and sentences.
        storage: the torch dtype of stored tensors, by name.
        matmul: the dtype in which matmuls multiply; a measured rate of it bounds this dtype.
        autocast: the torch dtype, by name, to which `torch.autocast` casts; None: no autocast.
        more_exact: dtypes in which a library may compute the same result instead.
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
    def mode(self) -> str:
        """How float32 matmuls run: `tf32` or `ieee`."""
        return "tf32" if self.matmul == "tf32" else "ieee"

    @property
    def meaning(self) -> list[str | None]:
        """The part that decides what runs: rows of this dtype are keyed by it."""
        return [self.storage, self.matmul, self.autocast]


# In reading order.
DTYPES = {
    "float32": Dtype("float32", "float32", "float32"),
    "tf32": Dtype("TF32", "float32", "tf32", more_exact=("float32",)),
    "float16": Dtype("float16", "float16", "float16", more_exact=("float32", "tf32")),
    "bfloat16": Dtype("bf16", "bfloat16", "bfloat16", more_exact=("float32", "tf32", "float16")),
    "autocast_float16": Dtype("float16 autocast", "float32", "float16", autocast="float16"),
    "autocast_bfloat16": Dtype("bf16 autocast", "float32", "bfloat16", autocast="bfloat16"),
}
# Dtypes of a single kernel; those of a kernel without matmuls; those of a matmul alone.
PLAIN_DTYPES = tuple(name for name, dtype in DTYPES.items() if dtype.autocast is None)
STORED_DTYPES = tuple(name for name, dtype in DTYPES.items() if dtype.storage == name)
MATMULS = tuple(name for name, dtype in DTYPES.items() if dtype.matmul == name)
# Dtypes of a model, whose weights are float32; those that differ in what is stored.
MODEL_DTYPES = ("float32", "tf32", "autocast_bfloat16")
MODEL_STORED_DTYPES = tuple(name for name in MODEL_DTYPES if name != "tf32")


def dtype_of(name: str) -> Dtype:
    """The entry of DTYPES.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}; known dtypes: {', '.join(DTYPES)}")
    return DTYPES[name]
