"""The named model sizes, their short names and aliases; imports no torch.

A size is named by its number of parameters, because courses give one name to different sizes: "xl"
has 2.0 billion parameters in the course of 2025 and 3.4 billion in that of 2026. `COURSES` maps the
names of both courses.
"""

from __future__ import annotations

from dataclasses import dataclass

VOCAB_SIZE = 10_000
ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class ModelSize:
    """Widths and depth of a Transformer language model.

    Attributes:
        d_model, d_ff, num_layers, num_heads: the dimensions, in elements.
        short: the name that tables show after they have shown the canonical name once.
        aliases: names that a user may write instead of the canonical one.

    Raises:
        ValueError: d_model does not split into heads of an even width, which RoPE needs.
    """

    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    short: str = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_heads(self.d_model, self.num_heads)

    @property
    def dimensions(self) -> tuple[int, int, int, int]:
        """(d_model, d_ff, num_layers, num_heads): what a measurement depends on, without names."""
        return self.d_model, self.d_ff, self.num_layers, self.num_heads

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads

    @property
    def linear_parameters(self) -> int:
        """Weights of a block's linear layers: 4 d^2 of the attention, 3 d f of the SwiGLU."""
        return 4 * self.d_model**2 + 3 * self.d_model * self.d_ff

    @property
    def block_parameters(self) -> int:
        """Weights of a block: its linear layers and two norms."""
        return self.linear_parameters + 2 * self.d_model

    def parameters(self, vocab: int = VOCAB_SIZE) -> int:
        """Parameters of the model: embedding and untied head 2 V d, the blocks, the last norm d."""
        return 2 * vocab * self.d_model + self.num_layers * self.block_parameters + self.d_model


@dataclass(frozen=True)
class Shape:
    """The dimensions of a train step; `batch` counts the sequences of all ranks."""

    size: ModelSize
    vocab: int
    context: int
    batch: int


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise ValueError unless num_heads divides d_model into heads of an even width."""
    if num_heads < 1 or d_model < 1 or d_model % num_heads:
        raise ValueError(f"d_model {d_model} is not divisible by num_heads {num_heads}")
    if (d_model // num_heads) % 2:
        raise ValueError(
            f"d_head {d_model // num_heads} is odd, but RoPE rotates pairs of channels"
        )


SIZES = {
    "tiny": ModelSize(256, 1024, 4, 4, short="tiny"),
    "0.13B": ModelSize(768, 3072, 12, 12, short="small", aliases=("small",)),
    "0.42B": ModelSize(1024, 4096, 24, 16, short="medium", aliases=("medium",)),
    "0.97B": ModelSize(1280, 5120, 36, 20, short="large", aliases=("large",)),
    "2.0B": ModelSize(1600, 6400, 48, 25, short="2.0B", aliases=("xl-2025",)),
    "3.4B": ModelSize(2560, 10240, 32, 32, short="3.4B", aliases=("2.7B", "xl-2026")),
    "12.8B": ModelSize(4608, 12288, 50, 36, short="12.8B", aliases=("10B",)),
}
# The sizes that tables of all sizes compare: tiny is for CPUs, and training 12.8B fits no GPU.
SWEPT = [name for name in SIZES if name not in ("tiny", "12.8B")]
# The train step of a public leaderboard.
LEADERBOARD = Shape(ModelSize(4096, 11008, 34, 32), vocab=151_936, context=32_768, batch=2)
# A name that a user may write instead -> key of `SIZES`.
ALIASES = {alias: name for name, size in SIZES.items() for alias in size.aliases}
# Short name -> size, as tables of results name it.
SHORT = {size.short: size for size in SIZES.values()}
# Year of the course -> name of a size in the course -> key of `SIZES`.
COURSES = {
    2025: {"small": "0.13B", "medium": "0.42B", "large": "0.97B", "xl": "2.0B", "2.7B": "3.4B"},
    2026: {"small": "0.13B", "medium": "0.42B", "large": "0.97B", "xl": "3.4B", "10B": "12.8B"},
}
