"""GPT-2 (Radford et al. 2019) of Hugging Face's `transformers`, in the project's model sizes."""

from torch import Tensor, nn


class GPT2(nn.Module):
    """A GPT-2 model: tokens [batch, seq_len] int64 -> logits [batch, seq_len, vocab_size].

    It has GPT-2's learned positions, LayerNorm, biases and GELU (d_ff channels). Unlike GPT-2, and
    like the project's model, it has no dropout, and its output weights are not tied to the
    embedding. The attention is PyTorch's SDPA.
    """

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
    ) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        config = GPT2Config(
            vocab_size=vocab_size,
            n_positions=context_length,
            n_embd=d_model,
            n_layer=num_layers,
            n_head=num_heads,
            n_inner=d_ff,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=None,
            attn_implementation="sdpa",
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens).logits
