"""Mixed precision: why sums are what they are, dtypes under autocast."""

import planted
import pytest

from lmperf.reporting.sections import section

STEM = "mixed_precision"
SUMS = {
    "float32 + float32": 10.000133514404297,
    "float16 + float16": 9.953125,
    "float32 + float16": 10.00213623046875,
    "float32 + float32(float16)": 10.00213623046875,
    "bfloat16 + bfloat16": 4.0,
    "float32 + bfloat16": 10.009765625,
}
# Tensor of a Transformer block -> its kind and its dtype under bf16 autocast.
BLOCK = {
    "attention.qkv.weight": ("parameter", "float32"),
    "attention_norm": ("output", "float32"),
    "attention.qkv": ("output", "bfloat16"),
    "feed_forward.down": ("output", "bfloat16"),
    "block": ("output", "float32"),
    "loss": ("loss", "float32"),
    "attention.qkv.weight.grad": ("gradient", "float32"),
}


def sums(**changed):
    """Rows of the sums; changed: names with underscores -> another value."""
    found = SUMS | {name.replace("_", " + "): value for name, value in changed.items()}
    return [
        planted.row(STEM, experiment="accumulation", subject=name, value=value, exact=10.0)
        for name, value in found.items()
    ]


def dtypes(changed):
    """Rows of a block's tensors under autocast; changed: tensor -> another dtype."""
    shared = {"experiment": "dtypes", "subject": "transformer_block", "dtype": "bfloat16"}
    return [
        planted.row(
            STEM,
            tensor=tensor,
            kind=kind,
            observed_dtype=changed.get(tensor, seen),
            implementation="eager",
            **shared,
        )
        for tensor, (kind, seen) in BLOCK.items()
    ]


def of(*rows):
    return section(planted.evidence(*rows), STEM)


def first_page(*rows):
    return planted.page("report/precision", planted.evidence(*rows))


def test_each_sum_has_its_reason_in_reading_order():
    (table,) = first_page(*sums()).tables
    names, values, reasons = ([cell.words for cell in column.cells] for column in table.columns)
    assert names[1:4] == ["float16 + float16", "float32 + float16", "bf16 + bf16"]
    assert values == ["10.0001", "9.9531", "10.0021", "4.0000", "10.0098"]
    for reason, part in zip(reasons, ["own", "cancel", "stores", "apart", "stores"], strict=True):
        assert part in reason


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"block": "bfloat16"}, ["weights", "gradients", "norms", "loss"]),
        ({"attention_norm": "bfloat16"}, ["weights", "gradients", "residual stream", "loss"]),
    ],
)
def test_dtypes_of_a_block_are_listed(changed, kept):
    assert of(*dtypes(changed)).kept_in("float32") == kept
