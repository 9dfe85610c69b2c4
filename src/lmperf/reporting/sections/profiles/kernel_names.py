"""Names of kernels that fit into a table, different ones for different kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

LENGTH = 60
# What a template is instantiated for, and the wrappers that say nothing of it.
PURPOSE = re.compile(r"\b(cutlass_\w+|\w*Functor\w*|\w+_kernel(?:_cuda|_impl)?)(?=[<(,>: ])")
WRAPPER = re.compile(r"[AB]?(Binary|Unary)Functor|gpu_kernel_impl(_nocast)?|elementwise_kernel")


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Full name -> a short one; where that is the same for several, what tells them apart is added.

    Deterministic in the set of the names, whatever their order.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(_elided(_base(name)), []).append(name)
    return {
        name: f"{words} ({label})" if label else words
        for words, group in groups.items()
        for name, label in _labels(group).items()
    }


def _base(name: str) -> str:
    """The name without namespaces, return type and arguments; in brackets what it is made for."""
    name = name.replace("(anonymous namespace)", "anonymous")
    base = re.sub(r"[<(].*", "", name).split("::")[-1].removeprefix("void ").strip()
    if name.startswith("aten::"):
        base = name
    inside = PURPOSE.findall(name.partition("<")[2])
    purpose = next((word for word in inside if not WRAPPER.fullmatch(word)), None)
    return f"{base} [{purpose}]" if purpose else base


def _elided(text: str) -> str:
    half = (LENGTH - 1) // 2
    return text if len(text) <= LENGTH else f"{text[:half]}…{text[-half:]}"


def _labels(group: Sequence[str]) -> dict[str, str]:
    """For each of several names the fewest of its words that no other name of them has together."""
    words = {name: list(dict.fromkeys(re.findall(r"[^\W_]+", name))) for name in group}
    labels = {name: _telling(name, words) for name in group}
    told = list(labels.values())
    return {
        name: label if told.count(label) == 1 else f"{label} {place}".strip()
        for place, (name, label) in enumerate(labels.items(), 1)
    }


def _telling(name: str, words: dict[str, list[str]]) -> str:
    others = [set(theirs) for other, theirs in words.items() if other != name]
    chosen: set[str] = set()
    while others:
        gain = {word: sum(word not in theirs for theirs in others) for word in words[name]}
        useful = [word for word in words[name] if gain[word]]
        if not useful:
            break
        best = max(useful, key=lambda word: (word[0].isalpha(), gain[word], len(word)))
        chosen.add(best)
        others = [theirs for theirs in others if best in theirs]
    return ", ".join(word for word in words[name] if word in chosen)
