"""The glossary of the write-up: terms that stand before their first use, one line each."""

from __future__ import annotations

import re

# Term -> what it means. The write-up shows the terms that occur in the rest of its text.
TERMS = {
    "ladder": "train steps of one size, each of which adds a technique to the one before it.",
    "compiled by block": "`torch.compile` of one Transformer block, which all layers share.",
    "host-bound": "the host needs nearly all of a step's time to launch its kernels, so that the"
    " device waits.",
    "filled grid": "attention with enough heads and sequences to keep the whole device busy.",
    "copy": "a copy of as many bytes, which may fit into a cache: the measure of work that only"
    " moves data.",
    "md_lrpe_cosine": "a position encoding for several axes, which only moves data.",
}
_PATTERNS = {
    "copy": r"\bcopy('s)? (speed|rate)|% of (a )?copy|to a copy",
    "compiled by block": r"\b[Cc]ompil(ed|ing) by block",
}


def terms(text: str) -> dict[str, str]:
    """The terms that occur in a text, with their meanings, in the order of ``TERMS``."""
    return {term: words for term, words in TERMS.items() if uses(text, term)}


def uses(text: str, term: str) -> bool:
    """Whether a text uses a term."""
    return re.search(_PATTERNS.get(term, re.escape(term)), text) is not None
