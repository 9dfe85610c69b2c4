"""Declarations of benchmarks: axes, implementations, columns, and what each case runs.

A benchmark is a module of `lmperf.benchmarks` with one subclass of `Timed` or `Observed`. The
module's name is the stem of its CSV and of its template. The workflow and the report import it on
machines without torch, so import torch inside `prepare` and `observe`, never at the top.

A cell is a point of the axes; a case is a cell with an implementation:

>>> class Softmax(Timed):
...     title = "Softmax"
...     axes = (Axis("seq_len", int), Axis("dtype", str, ("float32", "bfloat16")))
...     grids = {
...         "cpu": [{"seq_len": [256, 512], "dtype": ["float32"], "implementation": ["eager"]}]
...     }
>>> [case.name for case in Softmax("softmax").cases("cpu")]
['seq_len=256, dtype=float32: eager', 'seq_len=512, dtype=float32: eager']
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from lmperf.gate import Gate

Value = int | str | bool


@dataclass(frozen=True)
class Axis:
    """One dimension of a benchmark's grid.

    Its values are integers from `least` to `most`, flags, members of `choices`, or strings that
    match `pattern`.

    Attributes:
        aliases: what a user may write instead of a value -> the value.
        former: what evidence of an earlier version calls a value -> the value.
        meaning: a value -> the definition that keys of rows hold; None: the value itself.
    """

    name: str
    kind: type
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1
    pattern: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)
    meaning: Callable[[str], object] | None = None


@dataclass(frozen=True)
class Column:
    """A column of a benchmark's CSV that is not an axis; `kind` is int, float, str or bool.

    Values (times, bytes, counts, errors) are never negative, unless the column is `signed`.
    """

    name: str
    kind: type = float
    signed: bool = False


def numbers(*names: str, signed: bool = False) -> tuple[Column, ...]:
    """Columns of numbers; they may be negative if `signed`."""
    return tuple(Column(name, signed=signed) for name in names)


def texts(*names: str) -> tuple[Column, ...]:
    """Columns of text."""
    return tuple(Column(name, str) for name in names)


# The columns that every benchmark has beside its axes.
COMMON_COLUMNS = (
    *texts("implementation", "phase", "status", "reason", "marks", "rounds_ms", "again_ms"),
    *texts("rounds_mhz", "together"),
    *numbers("requested_bytes", "free_bytes", "median_ms", "mean_ms", "std_ms", "p20_ms", "p80_ms"),
    *numbers("host_ms", "eager_ms", "repetitions", "compile_s", "flops", "bytes", "tflops"),
    *numbers("bandwidth_gbps", "max_error", "error_bound", "pytorch_error"),
    *numbers("resident_mib", "saved_mib", "peak_mib", "clock_mhz", "power_w"),
    *numbers("temperature_c", signed=True),
    *numbers("other_load", "reference", "seed"),
    *texts("throttle", "environment", "commit", "measured_at", "key"),
)


@dataclass(frozen=True)
class Case:
    """A cell with an implementation. Each phase of it is one row."""

    cell: tuple[tuple[str, Value], ...]
    implementation: str

    @property
    def axes(self) -> dict[str, Value]:
        return dict(self.cell)

    @property
    def name(self) -> str:
        axes = ", ".join(f"{axis}={value}" for axis, value in self.cell)
        return f"{axes}: {self.implementation}"


class Unsupported(Exception):
    """The case cannot run here; the message is the reason that its row shows."""


class WrongResult(Exception):
    """A result has the wrong type, dtype, shape or device, or a call changed its inputs."""


@dataclass(frozen=True)
class Phase:
    """What is timed: `run(before())`, where `before` runs outside the clock.

    flops, bytes: of one call, from the closed form.
    """

    run: Callable[[Any], Any]
    before: Callable[[], Any] = lambda: None
    flops: int | None = None
    bytes: int | None = None


@dataclass
class Workload:
    """A prepared case.

    Attributes:
        phases: the phases that the case has.
        gate: takes names of phases and compares their results with the reference.
        freshen: takes a seed and writes new inputs into the same memory; called before each call.
        check: takes a phase and the result of a timed call and compares it with the reference of
            the current inputs. May raise WrongResult.
        resident: tensors that the case needs throughout (inputs, parameters).
        compiles: whether the first calls compile or autotune.
        context: entered around every call, timed or not (precision flags, for example).
        columns: values of further columns of its rows.
    """

    phases: dict[str, Phase]
    gate: Callable[[list[str]], Gate] | None = None
    freshen: Callable[[int], None] | None = None
    check: Callable[[str, Any], Gate] | None = None
    resident: list[Any] = field(default_factory=list)
    compiles: bool = False
    context: Callable[[], Any] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


# What a custom implementation must be.
TAKES = {
    "attention": "a function of (q, k, v, causal=...), or an autograd.Function class",
    "lrpe": "a function of (x, theta, shape, extra_tokens)",
    "model": (
        "a model class, a function that takes a model and gives back what is called, or a train"
        " step (model, optimizer, tokens, targets)"
    ),
}

# The tolerance of an implementation that rounds no more than its dtype requires.
STRICT = "strict"


@dataclass(frozen=True)
class Implementation:
    """What a benchmark times or observes: the code to run, and what it needs.

    Attributes:
        name: its value in the column `implementation`.
        entry: `package.module:function` or `:Class`; empty: the benchmark's own code.
        options: keyword arguments that are bound to the entry.
        tolerance: how it rounds beyond what its dtype requires: a word that the gate has a bound
            for.
        compiles: whether the first calls compile or autotune.
        needs_cuda: whether it runs on CUDA devices only.
        origin: `project`, `peer` (another project's) or `custom` (the user's).
        version: of the package that its module calls, if that is another project's.
        presets: the presets in which a peer or a custom implementation takes part; empty: all.
        only: axis -> the values with which it is measured; an axis that is missing: all values.
    """

    name: str
    entry: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: str = STRICT
    compiles: bool = False
    needs_cuda: bool = False
    origin: str = "project"
    version: str = ""
    presets: tuple[str, ...] = ()
    only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module of its entry."""
        return self.entry.partition(":")[0]

    def joins(self, preset: str, axes: Mapping[str, Value]) -> bool:
        """Whether a peer or custom implementation takes part in a cell of a preset's grid."""
        here = not self.presets or preset in self.presets
        return here and all(axes[axis] in values for axis, values in self.only.items())


def resolve(entry: str) -> Any:
    """The function or class of an entry, `package.module:name`."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


class Benchmark:
    """A topic of the report, declared by class attributes.

    `lmperf.evidence.keys.DECLARATIONS` names the attributes that make no row stale.

    Attributes:
        title: heading of its section.
        section: stem of the section that shows it; None: its own.
        order: position of its section in the write-up, lowest first.
        axes: the columns that name a cell.
        grids: preset -> products of axis values; the key `implementation` lists names.
        implementations: the project's.
        takes: what a custom implementation must be, a key of `TAKES`; None: none is accepted.
        together: axes whose values are timed in turn, like implementations of one cell.
        phases: what is timed or observed of each case.
        index: further columns that distinguish the rows of one case and phase.
        columns: its columns beside the axes and `COMMON_COLUMNS`.
        stated: constants of its code that its section quotes.
        check: stem of the kernel test that runs before this benchmark, if any.
        is_check: whether it is such a test.
        limit_s: time-out in seconds of one step (preparing, checking, one round) of a case.
        patient: whether a CPU may take longer over each row, because there are few.
    """

    title: str
    axes: tuple[Axis, ...]
    grids: Mapping[str, list[dict[str, list]]]
    implementations: tuple[Implementation, ...] = ()
    takes: str | None = None
    together: tuple[str, ...] = ()
    phases: tuple[str, ...] = ("forward",)
    index: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    stated: Mapping[str, Any] = {}
    section: str | None = None
    order: int = 1000
    check: str | None = None
    is_check = False
    limit_s: float = 120.0
    patient: bool = False

    def __init__(self, stem: str, external: Mapping[str, str | Implementation] | None = None):
        """`external`: peers and custom implementations; a string is the entry of a custom one."""
        self.stem = stem
        self.external = {
            name: Implementation(name, one, origin="custom") if isinstance(one, str) else one
            for name, one in (external or {}).items()
        }

    @property
    def entry(self) -> str:
        """`package.module:Class` of the declaration."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row of this benchmark's CSV."""
        return (*(axis.name for axis in self.axes), "implementation", "phase", *self.index)

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """All columns beside the axes."""
        return (*COMMON_COLUMNS, *self.columns)

    @property
    def kinds(self) -> dict[str, type]:
        """The type of every column, axes included."""
        columns = {column.name: column.kind for column in self.declared_columns}
        return {**{axis.name: axis.kind for axis in self.axes}, **columns}

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> str | None:
        """Why a case is left out of the grid, or None."""
        return None

    def cases(self, preset: str, overrides: Mapping[str, list] | None = None) -> list[Case]:
        """The cases of a preset's grid, in order and without repetition.

        overrides: axis -> values that replace those of the grid; `implementation` likewise.
        """
        found: dict[Case, None] = {}
        for grid in self.grids.get(preset, ()):
            grid = {**grid, **(overrides or {})}
            for values in itertools.product(*(grid[axis.name] for axis in self.axes)):
                cell = tuple(zip((axis.name for axis in self.axes), values, strict=True))
                axes = dict(cell)
                joining = (name for name, one in self.external.items() if one.joins(preset, axes))
                for name in (*grid["implementation"], *joining):
                    if self.not_applicable(axes, name) is None:
                        found[Case(cell, name)] = None
        return list(found)

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Split cases into groups that are timed in turn, so that they can be compared."""
        groups: dict[tuple, list[Case]] = {}
        for case in cases:
            apart = tuple(pair for pair in case.cell if pair[0] not in self.together)
            groups.setdefault(apart, []).append(case)
        return list(groups.values())

    @cached_property
    def known(self) -> dict[str, Implementation]:
        """All implementations by name: the project's, peers and custom ones."""
        return {one.name: one for one in self.implementations} | self.external

    def implementation(self, name: str) -> Implementation:
        """The implementation of that name, whatever its origin.

        Raises:
            KeyError: the name is unknown.
        """
        if name not in self.known:
            known = ", ".join(self.known)
            raise KeyError(f"{self.stem} has no implementation {name}; it has {known}")
        return self.known[name]

    def callable_of(self, name: str) -> Callable:
        """The function or class that an implementation names, with its options bound."""
        implementation = self.implementation(name)
        called = resolve(implementation.entry)
        return partial(called, **implementation.options) if implementation.options else called

    def tolerance_of(self, name: str) -> str:
        """The tolerance that an implementation declares."""
        return self.implementation(name).tolerance

    @classmethod
    def known_tolerances(cls) -> tuple[str, ...]:
        """The tolerances that implementations of this benchmark may declare."""
        return tuple(dict.fromkeys((STRICT, *(one.tolerance for one in cls.implementations))))

    def require(self, case: Case, device: str) -> Implementation:
        """The implementation of a case.

        Raises:
            Unsupported: it does not run on the device.
        """
        implementation = self.implementation(case.implementation)
        if implementation.needs_cuda and device != "cuda":
            raise Unsupported("needs a CUDA device")
        return implementation


class Timed(Benchmark):
    """A benchmark whose rows are times; `clock` is `kernel` (device events) or `step` (wall)."""

    clock: str = "kernel"

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        """Prepare a case for timing.

        shared: one dict for all cases of a group in a worker, for problems that they share.

        Raises:
            Unsupported: the case cannot run here.
        """
        raise NotImplementedError


class Observed(Benchmark):
    """A benchmark whose rows are observations without a clock: bytes, dtypes, errors."""

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        """The rows of one phase of a case: values of `index` and `columns`.

        Raises:
            Unsupported: the case cannot run here.
        """
        raise NotImplementedError
