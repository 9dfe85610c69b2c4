"""Classes that declare benchmarks: axes, implementations, columns, and what each case runs.

A benchmark is a module of `lmperf.benchmarks` with one subclass of `Timed` or `Observed`. The
module's name is the stem of its CSV and of its template. The workflow and the report import it on
machines without torch, so import torch inside `prepare` and `observe`, never at the top.

A cell is one combination of axis values; a case is a cell and an implementation to run in it:

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from lmperf.gate import Gate

Value = int | str | bool
# A part of a grid: axis, or `implementation` -> values.
Part = Mapping[str, Sequence[Value]]
# The preset whose grids are those of `gpu` and further ones: the whole tables.
FULL = "full"
# A CPU counts as so many devices: as many processes share its cores.
CPU_DEVICES = 2


@dataclass(frozen=True)
class Axis:
    """One dimension of a benchmark's grid.

    Its values are integers from `least` to `most`, flags, members of `choices`, or strings that
    match `pattern`.

    Attributes:
        aliases: alternative name that a user may write -> the value.
        meaning: returns the definition that stands for a value in the keys of rows; None: the
            value itself.
    """

    name: str
    kind: type
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 2**31 - 1
    pattern: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    meaning: Callable[[str], object] | None = None


@dataclass(frozen=True)
class Column:
    """A column of a benchmark's CSV that is not an axis.

    Attributes:
        kind: int, float, str or bool.
        signed: whether values may be negative; times, bytes, counts and errors are not.
    """

    name: str
    kind: type = float
    signed: bool = False


def numbers(*names: str, signed: bool = False) -> tuple[Column, ...]:
    """Return columns of numbers; the numbers may be negative if `signed`."""
    return tuple(Column(name, signed=signed) for name in names)


def texts(*names: str) -> tuple[Column, ...]:
    """Return columns of text."""
    return tuple(Column(name, str) for name in names)


def grid(**axes: Value | Sequence[Value]) -> dict[str, list[Value]]:
    """Return a grid: axis, or `implementation` -> values. One value stands for a list of it.

    >>> grid(seq_len=[256, 512], dtype="float32")
    {'seq_len': [256, 512], 'dtype': ['float32']}
    """
    is_one = (int, str)
    return {name: [of] if isinstance(of, is_one) else list(of) for name, of in axes.items()}


# The columns that every benchmark has in addition to its axes.
COMMON_COLUMNS = (
    *texts("implementation", "phase", "status", "reason", "marks", "rounds_ms"),
    *texts("bound", "together"),
    *numbers("requested_bytes", "free_bytes", "median_ms", "low_ms", "high_ms", "n"),
    *numbers("host_ms", "eager_ms", "compile_s", "vector_bits"),
    *numbers("flops", "full_flops", "bytes", "tflops"),
    *numbers("bandwidth_gbps", "max_error", "error_bound", "pytorch_error"),
    *numbers("resident_mib", "saved_mib", "peak_mib", "clock_mhz", "power_w"),
    *numbers("other_load", "seed"),
    *texts("environment", "gpus", "commit", "measured_at", "key"),
)

# Further columns of steps: on a GPU (see `lmperf.measuring.device_time`), and of their parts.
STEP_COLUMNS = numbers(
    *("device_ms", "launches", "communication_ms"),
    *("forward_ms", "loss_ms", "backward_ms", "optimizer_ms"),
)


@dataclass(frozen=True)
class Case:
    """A cell (values of all axes) and an implementation; each phase of a case is one row."""

    cell: tuple[tuple[str, Value], ...]
    implementation: str

    @property
    def axes(self) -> dict[str, Value]:
        return dict(self.cell)

    @property
    def columns(self) -> dict[str, Value]:
        """The values of all axes and the implementation, as each row of the case has them."""
        return {**self.axes, "implementation": self.implementation}

    def is_in(self, part: Mapping[str, Collection[Value]]) -> bool:
        """Whether the case has one of the values that a part of a grid gives for each axis."""
        columns = self.columns
        return all(columns.get(axis) in values for axis, values in part.items())

    @property
    def name(self) -> str:
        axes = ", ".join(f"{axis}={value}" for axis, value in self.cell)
        return f"{axes}: {self.implementation}"


class Unsupported(Exception):
    """Raised if a case cannot run here; the row of the case shows the message as its reason."""


class WrongResult(Exception):
    """Raised if a result has the wrong type, dtype, shape or device, or if inputs were changed."""


@dataclass(frozen=True)
class Phase:
    """A phase of a case, such as forward: the call `run(before())`, of which only `run` is timed.

    Attributes:
        run: takes the result of `before`.
        before: prepares each call, outside the timed region.
        flops: FLOPs of one call, from a closed form; None: unknown. Of causal attention, only the
            half that must be computed counts.
        bytes: bytes that one call reads and writes, from a closed form; None: unknown.
        full_flops: as `flops`, with all scores of causal attention counted; None: equal to `flops`.
        parts: of a train step, makes the call and calls a function with the name of each part
            (forward, loss, backward, optimizer) when it has been run or queued; None: it has none.
    """

    run: Callable[[Any], Any]
    before: Callable[[], Any] = lambda: None
    flops: int | None = None
    bytes: int | None = None
    full_flops: int | None = None
    parts: Callable[[Callable[[str], None]], Any] | None = None


@dataclass
class Workload:
    """A case that is prepared for timing.

    Attributes:
        phases: name -> phase.
        gate: the correctness check: takes names of phases and compares their results with the
            reference.
        expect: computes what the gate compares with; called before the first call, when most memory
            is free.
        freshen: takes a seed and writes new inputs into the same memory; called before each call.
        check: takes the name of a phase and the result of a timed call; compares the result with
            the reference for the current inputs. May raise WrongResult.
        resident: tensors that the case needs throughout (inputs, parameters).
        least_mib: what must be allocated at the peak of a call; a smaller peak is left out.
        compiles: whether the first calls compile or autotune.
        context: returns a context manager that is entered around every call, timed or not (for
            precision flags, for example).
        columns: column -> value, for further columns of the case's rows.
    """

    phases: dict[str, Phase]
    gate: Callable[[list[str]], Gate] | None = None
    expect: Callable[[], Any] | None = None
    freshen: Callable[[int], None] | None = None
    check: Callable[[str, Any], Gate] | None = None
    resident: list[Any] = field(default_factory=list)
    least_mib: float = 0.0
    compiles: bool = False
    context: Callable[[], Any] | None = None
    columns: dict[str, Any] = field(default_factory=dict)


# The tolerance of an implementation that rounds no more than its dtype requires.
STRICT = "strict"


@dataclass(frozen=True)
class Implementation:
    """An implementation that a benchmark measures: the code to run, and its requirements.

    Attributes:
        name: the value in the column `implementation`.
        entry: `package.module:function` or `:Class`; empty: the benchmark's own code.
        options: keyword arguments that are bound to the function or class.
        tolerance: name of the extra rounding that the implementation may do; the correctness check
            has an error bound for each name. `strict`: only the rounding that the dtype requires.
        compiles: whether the first calls compile or autotune; of a user's model, whether lmperf
            compiles it.
        needs_cuda: whether it runs on CUDA devices only.
        origin: `project`, `peer` (another project's) or `custom` (the user's).
        version: version of another project's package that the module calls; empty: none.
        only: axis -> the values with which it is measured; all values for an absent axis.
        models: of a user's strategy or optimizer, (name, entry, options) of the implementations of
            which it trains the first one that is a model class; an empty entry is the project's
            model, as is an empty list.
    """

    name: str
    entry: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    tolerance: str = STRICT
    compiles: bool = False
    needs_cuda: bool = False
    origin: str = "project"
    version: str = ""
    only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    models: Sequence[Sequence[Any]] = ()

    @property
    def may_compile(self) -> bool:
        """Whether its calls compile, or may, as code that is not the project's."""
        return self.compiles or self.origin != "project"

    @property
    def to_compile(self) -> bool:
        """Whether it is a user's model that lmperf compiles."""
        return self.compiles and self.origin == "custom"

    @property
    def module(self) -> str:
        """The module part of the entry."""
        return self.entry.partition(":")[0]

    @property
    def function(self) -> str:
        """The function or class of the entry."""
        return self.entry.rpartition(":")[2]

    def joins(self, preset: str, axes: Mapping[str, Value]) -> bool:
        """Whether a peer or custom implementation is measured in a cell of a preset's grid."""
        here = preset != "cpu" or not self.needs_cuda
        return here and all(axes[axis] in values for axis, values in self.only.items())


class Loader(Protocol):
    """Loads implementations of one kind that are not the project's own.

    Attributes:
        adapters: modules that make them comparable; keys of their rows count them.
    """

    name: str
    adapters: tuple[str, ...]

    def load(self, implementation: Implementation) -> Callable:
        """Import the function or class of an implementation and bind its options."""


@dataclass(frozen=True)
class Trial:
    """How `lmperf try` times a custom implementation on one kind of device.

    It checks it in the smallest cell, then times it in a cell of the head; without a head, in the
    first one of the grid.

    Attributes:
        beside: the best implementations that a user can install there, timed as well; those that
            are not installed are left out.
        phases: the phases that are timed; empty: all.
        more: further parts of the grid, in the form of a head's, of each of which the first cell is
            timed.
        least: axis -> value of the smallest cell, where that of the grid is not small enough.
    """

    beside: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    more: tuple[Mapping[str, Sequence[Value]], ...] = ()
    least: Mapping[str, Value] = field(default_factory=dict)


def resolve(entry: str) -> Any:
    """Import and return the function or class of an entry, `package.module:name`."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


class Benchmark:
    """A topic of the report, declared by class attributes.

    `lmperf.evidence.closure.DECLARATIONS` names the attributes that make no row stale.

    Attributes:
        title: heading of the benchmark's section in the report.
        section: stem of the section that shows the benchmark; None: a section of its own.
        order: position of the section in the report, lowest first.
        axes: the columns whose values identify a cell.
        grids: preset -> list of grids, each axis -> values; a grid is the product of the values.
            The key `implementation` lists the implementations to measure. The preset `full` has the
            grids of `gpu` as well.
        head: preset -> the parts of its grid that are measured first, and alone by the preset
            `quick`: cells of the write-up's own tables. A part gives values of axes, and of
            `implementation` if the benchmark times nothing; it has all cases of the grid with
            these. It splits no group, since a group is measured as a whole.
        trials: preset `cpu` or `gpu` -> how `lmperf try` times a custom implementation.
        repeated: preset -> the parts of its grid whose rows a full run measures a second time, in
            the form of `head`: what the first page recommends, and its peers.
        implementations: the project's own implementations.
        takes: what loads a peer or custom implementation, such as `lmperf.own.kinds.ATTENTION`;
            None: no custom implementation is accepted.
        together: axes whose values are timed interleaved, like the implementations of one cell.
        phases: what is timed or observed of each case.
        index: further columns that distinguish the rows of one case and phase.
        columns: further columns, in addition to the axes and `COMMON_COLUMNS`.
        stated: name -> constant of the benchmark's code that the report's text quotes.
        check: stem of the kernel test that runs before this benchmark, if any.
        is_check: whether this benchmark is itself a kernel test.
        limit_s: time-out in seconds of one step (preparing, checking, one round) of a case.
        least_devices: devices that a machine must have to measure the benchmark. A CPU counts as
            two, since two processes can share it.
    """

    title: str
    axes: tuple[Axis, ...]
    grids: Mapping[str, list[dict[str, list]]]
    trials: Mapping[str, Trial] = MappingProxyType({})
    head: Mapping[str, Sequence[Part]] = MappingProxyType({})
    repeated: Mapping[str, Sequence[Part]] = MappingProxyType({})
    implementations: tuple[Implementation, ...] = ()
    takes: Loader | None = None
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
    least_devices: int = 1

    def __init__(self, stem: str, external: Mapping[str, str | Implementation] | None = None):
        """Create the benchmark of a stem.

        external: name -> a peer, a custom implementation, or the entry of a custom one.
        """
        self.stem = stem
        self.external = {
            name: Implementation(name, one, origin="custom") if isinstance(one, str) else one
            for name, one in (external or {}).items()
        }

    @property
    def entry(self) -> str:
        """The entry `package.module:Class` of the class that declares the benchmark."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row of this benchmark's CSV."""
        return (*(axis.name for axis in self.axes), "implementation", "phase", *self.index)

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """All columns other than the axes: the common ones and the benchmark's own."""
        return (*COMMON_COLUMNS, *self.columns)

    @property
    def kinds(self) -> dict[str, type]:
        """Name -> type of every column, axes included."""
        columns = {column.name: column.kind for column in self.declared_columns}
        return {**{axis.name: axis.kind for axis in self.axes}, **columns}

    def grids_of(self, preset: str) -> list[dict[str, list]]:
        """Return the grids of a preset; empty if the benchmark has no cells in it."""
        narrower = self.grids.get("gpu", ()) if preset == FULL else ()
        return [*narrower, *self.grids.get(preset, ())]

    def not_applicable(self, axes: Mapping[str, Value], implementation: str) -> bool:
        """Return whether a case is left out of the grid."""
        return False

    def cases(self, preset: str, overrides: Mapping[str, list] | None = None) -> list[Case]:
        """Return the cases of a preset's grid, in order and without repetition.

        overrides: axis, or `implementation` -> values that replace the values in the grid.
        """
        found: dict[Case, None] = {}
        for grid in self.grids_of(preset):
            grid = {**grid, **(overrides or {})}
            for values in itertools.product(*(grid[axis.name] for axis in self.axes)):
                cell = tuple(zip((axis.name for axis in self.axes), values, strict=True))
                axes = dict(cell)
                joining = (name for name, one in self.external.items() if one.joins(preset, axes))
                for name in (*grid["implementation"], *joining):
                    if not self.not_applicable(axes, name):
                        found[Case(cell, name)] = None
        return list(found)

    def head_cases(self, preset: str, overrides: Mapping[str, list] | None = None) -> list[Case]:
        """Return the cases of a preset's grid that belong to its head; arguments as for `cases`."""
        return self.cases_in(self.head, preset, overrides)

    def cases_in(
        self,
        parts_of: Mapping[str, Sequence[Part]],
        preset: str,
        overrides: Mapping[str, list] | None = None,
    ) -> list[Case]:
        """Return the cases of a preset's grid that belong to one of its parts, as of `repeated`.

        overrides: as for `cases`; they replace the values of the parts, too.
        """
        replaced = overrides or {}
        parts = [
            {axis: values for axis, values in part.items() if axis not in replaced}
            for part in parts_of.get("gpu" if preset == FULL else preset, ())
        ]
        cases = self.cases(preset, overrides)
        return [case for case in cases if any(case.is_in(part) for part in parts)]

    def phases_of(self, case: Case) -> tuple[str, ...]:
        """Return the phases of a case: those of the benchmark, or fewer of them."""
        return self.phases

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Split cases into groups; the cases of a group are timed interleaved, to be comparable."""
        groups: dict[tuple, list[Case]] = {}
        for case in cases:
            apart = tuple(pair for pair in case.cell if pair[0] not in self.together)
            groups.setdefault(apart, []).append(case)
        return list(groups.values())

    def group_name(self, cell: Iterable[tuple[str, Value]]) -> str:
        """Return the name of the group of a cell: the values of the axes that its cases share."""
        shared = (f"{axis}={value}" for axis, value in cell if axis not in self.together)
        return ", ".join(shared) or self.stem

    @property
    def known(self) -> dict[str, Implementation]:
        """Name -> implementation, for the project's own, peers and custom ones."""
        return {one.name: one for one in self.implementations} | self.external

    def implementation(self, name: str) -> Implementation:
        """Return the implementation with this name, of any origin.

        Raises:
            KeyError: the name is unknown.
        """
        if name not in self.known:
            known = ", ".join(self.known)
            raise KeyError(f"{self.stem} has no implementation {name}; it has {known}")
        return self.known[name]

    def callable_of(self, name: str) -> Callable:
        """Import the function or class of an implementation and bind its options.

        Raises:
            Unsupported: a peer or custom implementation is not what the benchmark takes.
        """
        implementation = self.implementation(name)
        if implementation.origin != "project":
            return self.takes.load(implementation)
        called, options = resolve(implementation.entry), implementation.options
        return partial(called, **options) if options else called

    def runs_back_to_back(self, case: Case) -> bool:
        """Return whether each call of a case is itself a long run of calls back to back.

        A device that is then held back by its power limit is what is to be measured: no mark.
        """
        return False

    @classmethod
    def known_tolerances(cls) -> tuple[str, ...]:
        """The names of the tolerances that implementations of this benchmark may declare."""
        return tuple(dict.fromkeys((STRICT, *(one.tolerance for one in cls.implementations))))

    def require(self, case: Case, device: str) -> Implementation:
        """Return the implementation of a case if it supports the device.

        Raises:
            Unsupported: the implementation does not run on the device.
        """
        implementation = self.implementation(case.implementation)
        if implementation.needs_cuda and device != "cuda":
            raise Unsupported("needs a CUDA device")
        return implementation


class Timed(Benchmark):
    """A benchmark whose rows are times.

    Attributes:
        clock: `kernel` (calls one by one, by device events) or `step` (back to back).
        steps: how many steps are timed, if they last for seconds; None: the clock decides.
        share: the share of the usual duration for which steps are timed.
    """

    clock: str = "kernel"
    steps: int | None = None
    share: float = 1.0

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        return super().declared_columns + (STEP_COLUMNS if self.clock == "step" else ())

    def prepare(self, case: Case, device: str, seed: int, shared: dict) -> Workload:
        """Prepare a case for timing.

        shared: a dict that all cases of a group in one worker share, for the problems that they
            have in common.

        Raises:
            Unsupported: the case cannot run here.
        """
        raise NotImplementedError

    def workload(
        self, case: Case, device: str, rank: Rank | None, seed: int, shared: dict
    ) -> Workload:
        """Prepare a case, or a rank's part of it; rank: None for a single process."""
        return self.prepare(case, device, seed, shared)


class Observed(Benchmark):
    """A benchmark whose rows are observations without a clock of ours: bytes, dtypes, errors.

    Attributes:
        traces: the folder for traces of the profiler; None: none are kept.
        results: the columns that `lmperf run` shows and compares; empty: all of `columns`.
    """

    traces: Path | None = None
    results: tuple[str, ...] = ()

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The columns that are the result of the benchmark."""
        return self.results or tuple(column.name for column in self.columns)

    @property
    def has_times(self) -> bool:
        """Whether rows have times, as of a profile, for which the load of others counts."""
        return any(column.name.endswith(("_ms", "_us")) for column in self.columns)

    def groups(self, cases: Iterable[Case]) -> list[list[Case]]:
        """Return a group for each case: nothing is timed, so nothing must be timed in turn."""
        return [[case] for case in cases]

    def observe(self, case: Case, phase: str, device: str, seed: int) -> list[dict[str, Any]]:
        """Return the rows of one phase of a case: values of the columns in `index` and `columns`.

        Raises:
            Unsupported: the case cannot run here.
        """
        raise NotImplementedError

    def seen(
        self, case: Case, phase: str, device: str, rank: Rank | None, seed: int
    ) -> list[dict[str, Any]]:
        """Observe a case in this process; rank: None for a single process."""
        return self.observe(case, phase, device, seed)


@dataclass(frozen=True)
class Rank:
    """One process of a rank group: processes that measure a case together.

    The default process group of `torch.distributed` is initialised in each of them.

    Attributes:
        number: the rank, from 0.
        ranks: number of processes in the group.
        device: `cuda` (the rank's GPU is the current device) or `cpu`.
        backend: `nccl` or `gloo`.
    """

    number: int
    ranks: int
    device: str
    backend: str


class RankedTimed(Timed):
    """A timed benchmark whose cases run on a group of `case.axes["ranks"]` processes.

    A time is the longest over the ranks of a call.
    """

    least_devices = 2

    def prepare_rank(self, case: Case, rank: Rank, seed: int, shared: dict) -> Workload:
        """Prepare this rank's part of a case.

        Every rank is given the same seeds, also in `freshen`, and runs the same calls in the same
        order, so that their collectives match.

        shared: a dict that all cases of a group share in this process.

        Raises:
            Unsupported: the case cannot run here; every rank must raise it.
        """
        raise NotImplementedError

    def workload(
        self, case: Case, device: str, rank: Rank | None, seed: int, shared: dict
    ) -> Workload:
        return self.prepare_rank(case, rank, seed, shared)


class RankedObserved(Observed):
    """An observed benchmark whose cases run on a group of `case.axes["ranks"]` processes."""

    least_devices = 2

    def observe_rank(self, case: Case, phase: str, rank: Rank, seed: int) -> list[dict[str, Any]]:
        """Observe on every rank; the rows that rank 0 returns are those of the case.

        Raises:
            Unsupported: the case cannot run here; every rank must raise it.
        """
        raise NotImplementedError

    def seen(
        self, case: Case, phase: str, device: str, rank: Rank | None, seed: int
    ) -> list[dict[str, Any]]:
        return self.observe_rank(case, phase, rank, seed)


def is_ranked(benchmark: Benchmark) -> bool:
    """Return whether the cases of a benchmark run on groups of ranks."""
    return isinstance(benchmark, RankedTimed | RankedObserved)


def ranks_of(benchmark: Benchmark, case: Case) -> int:
    """Return the number of processes that measure a case together: 1 unless it is ranked."""
    return int(case.axes["ranks"]) if is_ranked(benchmark) else 1
