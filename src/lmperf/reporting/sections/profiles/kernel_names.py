"""Short names of kernels for tables, unique for each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

LENGTH = 60
MOST_WORDS = 3
# Template arguments that say what a kernel computes, and wrappers among them that do not.
PURPOSE = re.compile(r"\b(cutlass_\w+|\w*Functor\w*|\w+_kernel(?:_cuda|_impl)?)(?=[<(,>: ])")
WRAPPER = re.compile(r"[AB]?(Binary|Unary)Functor|gpu_kernel_impl(_nocast)?|elementwise_kernel")


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Full kernel name -> short name. Words from the full names make equal short names unique.

    The result does not depend on the order of the names.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(_base(name), []).append(name)
    return {name: text for base, group in groups.items() for name, text in _apart(base, group)}


def _base(name: str) -> str:
    """A kernel name without namespaces, return type and arguments; [functor or kernel] added."""
    if name.startswith("aten::"):
        return name
    name = name.replace("(anonymous namespace)", "anonymous")
    base = re.sub(r"[<(].*", "", name).split("::")[-1].removeprefix("void ").strip()
    inside = PURPOSE.findall(name.partition("<")[2])
    purpose = next((word for word in inside if not WRAPPER.fullmatch(word)), None)
    text = f"{base} [{purpose}]" if purpose else base
    return text if len(text) <= LENGTH else f"{text[: LENGTH // 2]}…{text[1 - LENGTH // 2 :]}"


def _apart(base: str, group: list[str]) -> Iterable[tuple[str, str]]:
    """(full name, short name) for kernels that share the short name ``base``.

    The fewest words that no other full name of the group combines are added, else a number.
    """
    if len(group) == 1:
        return [(group[0], base)]
    words = [dict.fromkeys(re.findall(r"[^\W_]+", name)) for name in group]
    labels = [_telling(mine, [other for other in words if other is not mine]) for mine in words]
    return [
        (name, f"{base} ({label or f'no. {place}'})")
        for place, (name, label) in enumerate(zip(group, labels, strict=True), 1)
    ]


def _telling(words: Iterable[str], others: list[dict]) -> str:
    useful = [word for word in words if any(word not in other for other in others)]
    useful = sorted(useful, key=lambda word: (not word[0].isalpha(), -len(word)))
    for number in range(1, MOST_WORDS + 1):
        for chosen in combinations(useful, number):
            if all(any(word not in other for word in chosen) for other in others):
                return ", ".join(chosen)
    return ""
