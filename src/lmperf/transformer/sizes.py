"""The named model sizes. No torch here: the configuration and the report read this, too."""

from dataclasses import dataclass

VOCAB_SIZE = 10_000
ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class ModelSize:
    """Widths and depth of a Transformer language model, all in elements.

    Raises ValueError when d_model does not split into heads of an even width (RoPE turns pairs).
    """

    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int

    def __post_init__(self) -> None:
        check_heads(self.d_model, self.num_heads)

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
        """Embedding and untied head 2 V d, the blocks, the last norm d."""
        return 2 * vocab * self.d_model + self.num_layers * self.block_parameters + self.d_model


def check_heads(d_model: int, num_heads: int) -> None:
    """Raise ValueError unless num_heads divides d_model into heads of an even width."""
    if num_heads < 1 or d_model < 1 or d_model % num_heads:
        raise ValueError(f"d_model {d_model} is not divisible by num_heads {num_heads}")
    if (d_model // num_heads) % 2:
        raise ValueError(
            f"d_head {d_model // num_heads} is odd, but RoPE rotates pairs of channels"
        )


SIZES = {
    "tiny": ModelSize(d_model=256, d_ff=1024, num_layers=4, num_heads=4),
    "small": ModelSize(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
    "medium": ModelSize(d_model=1024, d_ff=4096, num_layers=24, num_heads=16),
    "large": ModelSize(d_model=1280, d_ff=5120, num_layers=36, num_heads=20),
    "xl": ModelSize(d_model=1600, d_ff=6400, num_layers=48, num_heads=25),
    "2.7B": ModelSize(d_model=2560, d_ff=10240, num_layers=32, num_heads=32),
}
