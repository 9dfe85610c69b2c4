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
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from lmperf.errors import UserError, described
from lmperf.gate import Gate

Value = int | str | bool


@dataclass(frozen=True)
class Axis:
    """One dimension of a benchmark's grid.

    Integers from `least` to `most`, a flag, one of `choices`, or any string that matches `pattern`.
    """

    name: str
    kind: type
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1
    pattern: str | None = None


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

# Numerics of an implementation that rounds no more than it must, and of one that declares nothing.
STRICT = "strict"


@dataclass(frozen=True)
class Own:
    """A user's implementation, or another project's: `package.module:function`.

    Attributes:
        numerics: the rounding that it declares.
        version: of the package that it calls, where that is installed apart from its module.
        presets: those whose cells it takes part in; all where empty.
        only: axis -> the values that it takes.
    """

    use: str
    numerics: str = STRICT
    version: str = ""
    presets: tuple[str, ...] = ()
    only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.use.partition(":")[0]

    @classmethod
    def of(cls, value: str | Own) -> Own:
        """One that is given by its function alone is strict."""
        return value if isinstance(value, Own) else cls(value)

    def joins(self, preset: str, axes: Mapping[str, Value]) -> bool:
        """Whether it has a part in a cell of a preset's grid."""
        here = not self.presets or preset in self.presets
        return here and all(axes[axis] in values for axis, values in self.only.items())


class Benchmark:
    """A topic of the report: axes, grids and implementations, declared as class attributes.

    Attributes:
        title: heading of its section.
        section: stem of the section that shows it; its own where None.
        order: where its section stands in the write-up, lowest first.
        axes: the columns that name a cell, in order.
        grids: preset -> products of axis values; the key `implementation` lists the names.
        implementations: name -> `package.module:function`, for those that are functions.
        numerics: name -> what it rounds beyond what it must, in a word that the gate has a bound
            for; the others are strict. A user's own declares one of the same words, or none.
        takes: what a user's own implementation of it must be, of `TAKES`; None: it takes none.
        compiles: those whose first calls compile or autotune.
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
    implementations: Mapping[str, str] = {}
    numerics: Mapping[str, str] = {}
    takes: str | None = None
    compiles: tuple[str, ...] = ()
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

    def __init__(self, stem: str, implementations: Mapping[str, str | Own] | None = None):
        self.stem = stem
        own = (implementations or {}).items()
        self.own_implementations = {name: Own.of(value) for name, value in own}

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
                axes, own = dict(cell), self.own_implementations.items()
                joining = (name for name, one in own if one.joins(preset, axes))
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

    def callable_of(self, implementation: str) -> Callable:
        """The function that an implementation, the project's or the user's own, names."""
        own = self.own_implementations.get(implementation)
        reference = own.use if own else self.implementations[implementation]
        module, _, name = reference.partition(":")
        return getattr(importlib.import_module(module), name)

    @classmethod
    def known_numerics(cls) -> tuple[str, ...]:
        """What an implementation of this benchmark can declare."""
        return tuple(dict.fromkeys((STRICT, *cls.numerics.values())))

    def numerics_of(self, implementation: str) -> str:
        """What an implementation, the project's or the user's own, declares to round."""
        own = self.own_implementations.get(implementation)
        return own.numerics if own else self.numerics.get(implementation, STRICT)


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


@cache
def stems() -> tuple[str, ...]:
    """The benchmarks that exist: the modules of `lmperf.benchmarks`."""
    import lmperf.benchmarks

    return tuple(sorted(module.name for module in pkgutil.iter_modules(lmperf.benchmarks.__path__)))


def load(stem: str, implementations: Mapping[str, str | Own] | None = None) -> Benchmark:
    """The benchmark that the module `lmperf.benchmarks.<stem>` declares.

    Raises:
        UserError: the module is broken, or declares none.
    """
    return _declared(stem)(stem, implementations)


@cache
def _declared(stem: str) -> type[Benchmark]:
    try:
        module = importlib.import_module(f"lmperf.benchmarks.{stem}")
    except (Exception, SystemExit) as error:
        raise UserError(f"benchmark {stem} cannot be imported: {described(error)}") from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Benchmark)
        and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UserError(f"{module.__file__}: must declare one Benchmark, not {len(found)}")
    if lacking := [name for name in ("title", "axes", "grids") if not hasattr(found[0], name)]:
        raise UserError(f"{module.__file__}: {found[0].__name__} lacks {', '.join(lacking)}")
    return found[0]
