"""Peak memory of `TransformerLM` in closed form, from the shapes that autograd saves.

Imports no torch.

Symbols, in elements: b batch, n context, T = b n tokens, d = d_model, f = d_ff, h heads, L layers,
V vocabulary, N = b h n^2 attention scores of a layer; w bytes of a matmul operand (4, or 2 under
bfloat16 autocast). Residual stream, norms, softmax and loss always take 4 bytes per element. The
smaller temporaries of a norm or of RoPE are never the peak and are left out.
"""

from dataclasses import dataclass

from lmperf.dtypes import dtype_of
from lmperf.transformer.sizes import VOCAB_SIZE, ModelSize

FLOAT32 = 4
# cuBLAS allocates this workspace on Hopper, through PyTorch's allocator, once for each calling
# thread; the backward pass runs in a separate thread.
CUBLAS_WORKSPACE = 32 * 2**20


def predicted_memory(
    size: ModelSize,
    context: int,
    batch: int,
    dtype: str,
    phase: str,
    device: str = "cpu",
    vocab: int = VOCAB_SIZE,
    segment: int = 0,
    nested: bool = False,
) -> dict[str, int]:
    """Bytes alive at the peak of a phase, by category, and their sum as "peak".

    phase: "forward" (inference under no_grad, no optimizer) or "train_step" (any step but the
    first: `lmperf.transformer.training.train_step` with the fused AdamW, whose state exists, and
    cleared gradients). dtype: a value of the dtype axis that stores float32 weights. device: "cuda"
    adds memory that its operators allocate internally. segment, nested: the checkpoints of a train
    step, as in `lmperf.transformer.checkpointing.Segments`. Categories: parameters; weight_copies
    (autocast's cache); gradients; optimizer (two moments); activations (saved for the backward
    pass); temporary; inputs (tokens, targets, RoPE tables); workspace (cuBLAS).

    Raises:
        ValueError: the dtype is unknown, or stores other weights.
    """
    checkpoints = {"segment": segment, "nested": nested}
    footprint = Footprint(size, context, batch, operand_bytes(dtype), device, vocab, **checkpoints)
    moments = footprint.inference() if phase == "forward" else footprint.training()
    return max(moments.values(), key=lambda moment: moment["peak"])


def operand_bytes(dtype: str) -> int:
    """Bytes of an element of a matmul operand, for a dtype with float32 weights."""
    stored = dtype_of(dtype)
    if stored.storage != "float32":
        raise ValueError(f"dtype {dtype!r}: the closed form needs float32 weights")
    return dtype_of(stored.autocast).bytes if stored.autocast else FLOAT32


@dataclass(frozen=True)
class Footprint:
    """Bytes alive at the moments of inference and of a training step that can be their peak.

    w: bytes of a matmul operand, 4 or 2. device: "cuda" adds memory that its operators allocate
    internally. segment: layers of a checkpoint, 0: no checkpoints; nested: each layer of a segment
    is a checkpoint as well.
    """

    size: ModelSize
    context: int
    batch: int
    w: int
    device: str
    vocab: int
    segment: int = 0
    nested: bool = False

    @property
    def stream(self) -> int:
        """Number of elements of the residual stream, T d."""
        return self.batch * self.context * self.size.d_model

    @property
    def hidden(self) -> int:
        """Number of elements of a feed-forward activation, T f."""
        return self.batch * self.context * self.size.d_ff

    @property
    def scores(self) -> int:
        """Number of elements of a layer's attention scores, N."""
        return self.batch * self.size.num_heads * self.context**2

    @property
    def logits(self) -> int:
        """Number of elements of the logits, T V."""
        return self.batch * self.context * self.vocab

    @property
    def autocasts(self) -> bool:
        return self.w < FLOAT32

    def norm_saved(self) -> int:
        """Bytes saved by a norm: input and normalised input [T, d], 1/rms [T], the next operand."""
        tokens = self.batch * self.context
        return FLOAT32 * (2 * self.stream + tokens) + self.w * self.stream

    def attention_saved(self) -> int:
        """Bytes saved by attention: norm; q, k, contiguous v; mask [n, n]; probabilities and their
        cast; output of the attention."""
        probabilities = self.scores * (FLOAT32 + (self.w if self.autocasts else 0))
        return self.norm_saved() + 4 * self.w * self.stream + self.context**2 + probabilities

    def feed_forward_saved(self) -> int:
        """Bytes saved by the feed-forward layer: norm; gate and up; silu(gate); their product."""
        return self.norm_saved() + 4 * self.w * self.hidden

    def weight_copies(self, blocks: int, *rest: int) -> int:
        """Bytes of autocast's copies: linear weights of `blocks` blocks, and `rest` elements."""
        elements = blocks * self.size.linear_parameters + sum(rest)
        return self.w * elements if self.autocasts else 0

    def moment(self, threads: int, **categories: int) -> dict[str, int]:
        inputs = 16 * self.batch * self.context + FLOAT32 * self.context * self.size.d_head
        alive = {
            "parameters": FLOAT32 * self.size.parameters(self.vocab),
            "weight_copies": 0,
            "gradients": 0,
            "optimizer": 0,
            "activations": 0,
            "temporary": 0,
            "inputs": inputs,
            "workspace": threads * CUBLAS_WORKSPACE if self.device == "cuda" else 0,
        } | categories
        return alive | {"peak": sum(alive.values())}

    def inference(self) -> dict[str, dict[str, int]]:
        """Bytes at the moments of inference: temporaries of the last block, or the logits.

        Nothing is saved for a backward pass.
        """
        stream, w = FLOAT32 * self.stream, self.w
        d, f, layers = self.size.d_model, self.size.d_ff, self.size.num_layers
        # x, its norm, the fused projection, rotated q and k. Under autocast also the masked scores,
        # their float32 copy and the softmax; else scores before and after masking, and the mask.
        softmax = (w + 2 * FLOAT32) * self.scores
        masking = 2 * FLOAT32 * self.scores + self.context**2
        attention = 2 * stream + 5 * w * self.stream + (softmax if self.autocasts else masking)
        # x before and after attention, its norm; gate and up, silu(gate), their product.
        feed_forward = 3 * stream + 4 * w * self.hidden
        # x, its norm, the operand cast from it, the logits.
        head = 2 * stream + (w * self.stream if self.autocasts else 0) + w * self.logits
        at_attention = self.weight_copies(layers - 1, 3 * d * d)
        at_feed_forward = self.weight_copies(layers - 1, 4 * d * d, 2 * d * f)
        at_head = self.weight_copies(layers, self.vocab * d)
        return {
            "attention": self.moment(1, weight_copies=at_attention, temporary=attention),
            "feed_forward": self.moment(1, weight_copies=at_feed_forward, temporary=feed_forward),
            "head": self.moment(1, weight_copies=at_head, temporary=head),
        }

    def training(self) -> dict[str, dict[str, int]]:
        """Bytes at the moments of a train step: loss, both ends of the backward pass, update.

        From the last block's backward pass to the first's, every layer changes the sum of
        activations and gradients by the same amount, so that the maximum is at one of the two ends;
        with checkpoints, at the end or the beginning of a segment.
        """
        parameters = FLOAT32 * self.size.parameters(self.vocab)
        moments = {"loss": self._loss(), "logits": self._logits()}
        for name, index in self._ends().items():
            moments[f"{name} feed_forward"] = self._feed_forward_backward(index)
            moments[f"{name} attention"] = self._attention_backward(index)
        # The embedding's gradient is written while the gradient of the stream is still alive.
        moments["embedding"] = self._training_moment(parameters, 0, FLOAT32 * self.stream, 0)
        moments["optimizer"] = self._training_moment(parameters, 0, 0, 0)
        return moments

    def _ends(self) -> dict[str, int]:
        """The layers at either end of the model, and of each segment; by name."""
        last = self.size.num_layers - 1
        starts = range(0, last + 1, self.segment) if self.segment else ()
        ends = {i: f"layer {i}" for start in starts for i in (start, start + self.segment - 1)}
        ends = {index: name for index, name in ends.items() if index < last}
        return {name: index for index, name in (ends | {last: "last", 0: "first"}).items()}

    def _training_moment(
        self, gradients: int, activations: int, temporary: int, weight_copies: int
    ) -> dict[str, int]:
        return self.moment(
            2,
            weight_copies=weight_copies,
            gradients=gradients,
            optimizer=2 * FLOAT32 * self.size.parameters(self.vocab),
            activations=activations,
            temporary=temporary,
        )

    def _logits(self) -> dict[str, int]:
        """Bytes alive at the log-softmax: the logits and their log-probabilities, both float32.

        Autocast still keeps its copies of all weights.
        """
        return self._at_head(FLOAT32 * self.logits, self.size.num_layers)

    def _loss(self) -> dict[str, int]:
        """Bytes alive in the backward of the loss.

        They include log-probabilities, their gradient and that of the logits, each [T, V] float32.
        Checkpointed layers have not saved their copies of weights.
        """
        return self._at_head(2 * FLOAT32 * self.logits, 0 if self.segment else self.size.num_layers)

    def _at_head(self, temporary: int, copied: int) -> dict[str, int]:
        """Bytes alive with temporary tensors beside the log-probabilities, and `copied` layers."""
        layers = self.size.num_layers
        inputs = FLOAT32 * self.stream * -(-layers // self.segment) if self.segment else 0
        saved = inputs or layers * self._layer_saved()
        return self._training_moment(
            gradients=0,
            activations=saved + self.norm_saved() + FLOAT32 * self.logits,
            temporary=temporary,
            weight_copies=self.weight_copies(copied, self.vocab * self.size.d_model),
        )

    def _gradients_after(self, index: int) -> int:
        """Bytes of the gradients of the head, the last norm and the blocks after block `index`."""
        behind = self.size.num_layers - 1 - index
        head = (self.vocab + 1) * self.size.d_model
        return FLOAT32 * (head + behind * self.size.block_parameters)

    def _layer_saved(self) -> int:
        return self.attention_saved() + self.feed_forward_saved()

    def _saved_before(self, index: int) -> int:
        """Bytes saved by the layers before layer `index`, and by checkpoints before it.

        A checkpoint saves its input, a tensor of the residual stream. The layers of the segment
        that is in its backward pass have been run again and save what they save without
        checkpoints, or, nested, one input each.
        """
        if not self.segment:
            return index * self._layer_saved()
        segments, inside = divmod(index, self.segment)
        if self.nested:
            return FLOAT32 * self.stream * (segments + inside)
        return FLOAT32 * self.stream * segments + inside * self._layer_saved()

    def _copied_before(self, index: int) -> int:
        """Layers before layer `index` whose weights have a copy in the backward pass of `index`."""
        if not self.segment:
            return index
        return 0 if self.nested else index % self.segment

    def _feed_forward_backward(self, index: int) -> dict[str, int]:
        """Bytes in the backward of silu(gate) * up: gradients of both factors and the product.

        Each gradient is [T, f]. The product itself was freed after the backward of the down
        projection. The gradients of the down projection's weight and of the stream are alive.
        """
        saved = self.attention_saved() + self.feed_forward_saved() - self.w * self.hidden
        d, f = self.size.d_model, self.size.d_ff
        return self._training_moment(
            gradients=self._gradients_after(index) + FLOAT32 * d * f,
            activations=self._saved_before(index) + saved,
            temporary=FLOAT32 * self.stream + 3 * self.w * self.hidden,
            weight_copies=self.weight_copies(self._copied_before(index), 4 * d * d, 2 * d * f),
        )

    def _attention_backward(self, index: int) -> dict[str, int]:
        """Bytes in the backward of the softmax: float32 gradients of probabilities and of scores.

        The output of the attention, v and the cast probabilities are freed; the gradients of the
        stream and of v are alive. CUDA's kernel stores gradient times probabilities as well.
        """
        cast = self.w * self.scores if self.autocasts else 0
        saved = self.attention_saved() - 2 * self.w * self.stream - cast
        score_tensors = 3 if self.device == "cuda" else 2
        d, f = self.size.d_model, self.size.d_ff
        return self._training_moment(
            gradients=self._gradients_after(index) + FLOAT32 * (3 * d * f + d + d * d),
            activations=self._saved_before(index) + saved,
            temporary=(FLOAT32 + self.w) * self.stream + score_tensors * FLOAT32 * self.scores,
            weight_copies=self.weight_copies(self._copied_before(index), 3 * d * d),
        )
