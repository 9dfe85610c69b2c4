"""The glossary of the write-up: terms with one line each, below the tables of what to run.

Terms of the lines and tables above it come first, the others stand before their first use.
"""

from __future__ import annotations

import re

# Term -> what it means. The write-up shows the terms that occur in the rest of its text.
FROM_ABOVE = {
    "marked": "a time that may not hold: the machine was disturbed, or another cell"
    " contradicts it.",
    "unresolved": "a comparison that shows neither a difference nor its absence.",
    "MFU": "the rate of a step's FLOPs as a share of the dense peak in the data sheet.",
    "burst and sustained": "a burst step is called singly, with pauses; sustained steps run back to"
    " back, as in training.",
    "fused blocks": "one kernel each for RMSNorm, RoPE and SwiGLU of a Transformer block.",
}
TERMS = FROM_ABOVE | {
    "ladder": "train steps of one size, each of which adds a technique to the one before it.",
    "host-bound": "the host needs nearly all of a step's time to launch its kernels, so that the"
    " device waits.",
    "filled grid": "attention with enough heads and sequences to keep the whole device busy.",
    "copy": "a copy of as many bytes, which may fit into a cache: the measure of work that only"
    " moves data.",
    "md_lrpe_cosine": "a position encoding for several axes, which only moves data.",
}
_PATTERNS = {
    "marked": r"\bmarked\b",
    "burst and sustained": r"\b([Bb]urst|[Ss]ustained)\b",
    "copy": r"\bcopy('s)? (speed|rate)|% of (a )?copy|to a copy",
}
# The part of the write-up that explains its own terms.
_METHOD = "\n## Method\n"


def terms(text: str) -> dict[str, str]:
    """The terms that occur in a text above its part on the method, in the order of ``TERMS``."""
    text = text.partition(_METHOD)[0]
    return {term: words for term, words in TERMS.items() if uses(text, term)}


def uses(text: str, term: str) -> bool:
    """Whether a text uses a term."""
    return re.search(_PATTERNS.get(term, re.escape(term)), text) is not None
