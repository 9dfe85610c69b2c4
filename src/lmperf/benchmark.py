"""What a benchmark is: the one declaration that everything else reads.

A benchmark is a module of `lmperf.benchmarks` with one subclass of `Timed` or `Observed`. Its name
is the stem of its CSV and of its template. The DAG and the renderer import the module on machines
that have no torch, so torch is imported inside `prepare` and `observe`, never at the top.

Vocabulary (a cell is a point of the axes, a case is a cell with an implementation):

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

Value = int | str | bool


@dataclass(frozen=True)
class Axis:
    """One dimension of a benchmark's grid.

    Its values are integers from `least` to `most`, flags, members of `choices`, or strings that
    match `pattern`.

    Attributes:
        aliases: what a user may write instead of a value -> the value.
        former: what evidence of an earlier version calls a value -> the value.
        meaning: a value -> what the key of a row holds of it; None: the value itself.
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
    """A column of a benchmark's CSV beside its axes: its name, and int, float, str or bool.

    What is measured (times, bytes, counts, errors) is never below zero, unless it is `signed`.
    """

    name: str
    kind: type = float
    signed: bool = False


def numbers(*names: str, signed: bool = False) -> tuple[Column, ...]:
    """Columns that hold numbers; below zero only where they are signed."""
    return tuple(Column(name, signed=signed) for name in names)


def texts(*names: str) -> tuple[Column, ...]:
    """Columns that hold text."""
    return tuple(Column(name, str) for name in names)


# What the core writes into every row, whatever the benchmark.
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
    """A cell with an implementation: what a row measures, one phase at a time."""

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
    """A case that cannot run here, with the reason that its row shall show."""


class WrongResult(Exception):
    """A result of another type, dtype, shape or device than it must have, or inputs changed."""


@dataclass(frozen=True)
class Phase:
    """What is timed: `run(before())`, with `before` outside the clock."""

    run: Callable[[Any], Any]
    before: Callable[[], Any] = lambda: None
    flops: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Gate:
    """Errors against the float64 reference, a bound for each, by name of the tensor.

    `pytorch()` gives the errors of PyTorch itself, in the same numerics and on the same inputs:
    what stands beside an error that is over its bound.
    """

    errors: Mapping[str, float]
    bounds: Mapping[str, float]
    pytorch: Callable[[], Mapping[str, float]] | None = None
    # Of a name that stands for several tensors (all gradients): the one that is meant, the worst.
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> str:
        """The tensor whose error comes closest to, or is furthest over, its bound."""
        return max(self.errors, key=lambda name: _excess(self.errors[name], self.bounds[name]))

    @property
    def worst_in_words(self) -> str:
        """The worst tensor and, where one name stands for several, which of them it is."""
        worst = self.worst
        return f"{worst} of {self.where[worst]}" if worst in self.where else worst

    @property
    def passed(self) -> bool:
        return all(self.errors[name] <= self.bounds[name] for name in self.errors)

    @property
    def columns(self) -> dict[str, float]:
        """What a row says of it: every error, the worst with its bound and, red, PyTorch's own."""
        worst = self.worst
        row = {"max_error": self.errors[worst], "error_bound": self.bounds[worst]}
        row |= {f"error_{name}": error for name, error in self.errors.items()}
        peer = {} if self.passed or self.pytorch is None else self.pytorch()
        return row | ({"pytorch_error": peer[worst]} if worst in peer else {})


def _excess(error: float, bound: float) -> float:
    return float("inf") if error != error else error / bound


@dataclass
class Workload:
    """A prepared case: its phases, its gate, and the tensors that stay alive between the phases.

    A phase that it lacks is one that the case does not have. `gate(phases)` checks what the named
    phases compute. `freshen(seed)` puts other inputs in the place of the last ones, in the same
    memory: it is called before every call. `check(phase, result)` holds what a timed call returned
    against the reference of the inputs as they are then; it may raise WrongResult. `resident` are
    tensors whose bytes count as this case's own (inputs, parameters). `compiles` says that the
    first calls compile or autotune. `context` is entered around every call, in the clock and out of
    it (precision flags, say).
    """

    phases: dict[str, Phase]
    gate: Callable[[list[str]], Gate] | None = None
    freshen: Callable[[int], None] | None = None
    check: Callable[[str, Any], Gate] | None = None
    resident: list[Any] = field(default_factory=list)
    compiles: bool = False
    context: Callable[[], Any] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


# What a user's own implementation must be.
TAKES = {
    "attention": "a function of (q, k, v, causal=...), or an autograd.Function class",
    "lrpe": "a function of (x, theta, shape, extra_tokens)",
    "model": (
        "a model class, a function that takes a model and gives back what is called, or a train"
        " step (model, optimizer, tokens, targets)"
    ),
}

# The tolerance of an implementation that rounds no more than it must.
STRICT = "strict"


@dataclass(frozen=True)
class Implementation:
    """One thing to be timed or observed in a benchmark: what it runs, and what that needs.

    Attributes:
        name: its value in the column `implementation`.
        entry: `package.module:function`, or a class; empty: the benchmark's own code runs it.
        options: keyword arguments that are bound to the entry.
        tolerance: what it rounds beyond what it must, a word that the gate has a bound for.
        compiles: its first calls compile or autotune.
        needs_cuda: it runs on a CUDA device alone.
        origin: `project`, `peer` (another project's) or `custom` (the user's own).
        version: of the package that it calls, where that is installed apart from its module.
        presets: those whose cells it takes part in; empty: all.
        only: axis -> the values with which it is measured.
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
        """Whether it takes part in a cell of a preset's grid."""
        here = not self.presets or preset in self.presets
        return here and all(axes[axis] in values for axis, values in self.only.items())


def resolve(entry: str) -> Any:
    """The function or class of an entry, `package.module:name`."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


class Benchmark:
    """A topic of the report: axes, grids and implementations, declared as class attributes.

    Attributes:
        title: heading of its section.
        section: stem of the section that shows it; its own where None.
        order: where its section stands in the write-up, lowest first.
        axes: the columns that name a cell, in order.
        grids: preset -> products of axis values; the key `implementation` lists the names.
        implementations: the project's, as the benchmark declares them.
        takes: what a custom implementation of it must be, of `TAKES`; None: it takes none.
        together: axes whose values are timed in turn with the implementations, not apart.
        phases: what is timed or observed of each case.
        index: further columns that tell rows of one case and phase apart.
        columns: what its rows hold beside the axes and `COMMON_COLUMNS`.
        stated: constants of its code that its section names in words.
        check: stem of the kernel test that runs before this benchmark, if any.
        limit_s: time-out of one step (preparing, checking, one round) of a case, in seconds.
        patient: whether its rows are few, so that a processor may take longer over each.
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
        """The columns that name a row of this benchmark's CSV."""
        return (*(axis.name for axis in self.axes), "implementation", "phase", *self.index)

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """The columns that a row of this benchmark can have beside its axes."""
        return (*COMMON_COLUMNS, *self.columns)

    @property
    def kinds(self) -> dict[str, type]:
        """The kind of every column that a row of this benchmark can have."""
        columns = {column.name: column.kind for column in self.declared_columns}
        return {**{axis.name: axis.kind for axis in self.axes}, **columns}

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> str | None:
        """Why this case is not part of the grid at all, or None."""
        return None

    def cases(self, preset: str, overrides: Mapping[str, list] | None = None) -> list[Case]:
        """Every case of the grid, in order and without repetition."""
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
        """Cases that are measured together in one worker, and timed in turn."""
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
        """The project's, a peer's or a custom implementation of that name.

        Raises:
            KeyError: there is none.
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
        """What an implementation declares to round."""
        return self.implementation(name).tolerance

    @classmethod
    def known_tolerances(cls) -> tuple[str, ...]:
        """What an implementation of this benchmark can declare to round."""
        return tuple(dict.fromkeys((STRICT, *(one.tolerance for one in cls.implementations))))

    def require(self, case: Case, device: str) -> Implementation:
        """The implementation of a case, if it can run on the device.

        Raises:
            Unsupported: it needs another device.
        """
        implementation = self.implementation(case.implementation)
        if implementation.needs_cuda and device != "cuda":
            raise Unsupported("needs a CUDA device")
        return implementation


class Timed(Benchmark):
    """A benchmark whose rows are times. `clock` is `kernel` (device events) or `step` (wall)."""

    clock: str = "kernel"

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        """Build what is timed; `shared` is one dict for a group's cases. May raise Unsupported."""
        raise NotImplementedError


class Observed(Benchmark):
    """A benchmark whose rows are observations that need no clock: bytes, dtypes, errors."""

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        """Rows (topic and `index` columns) of one phase of a case. May raise Unsupported."""
        raise NotImplementedError
