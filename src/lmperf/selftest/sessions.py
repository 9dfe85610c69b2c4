"""The cases of the self-test: planted implementations, and the expected outcome of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lmperf.benchmarks import load
from lmperf.evidence.machine import Machine
from lmperf.selftest.expectations import OK, Expected

STEM, RANKED_STEM, LEDGER_STEM = "flash_attention", "distributed", "distributed_overlap"


@dataclass(frozen=True)
class Planted:
    """A planted implementation with a fault, or the honest twin of one.

    A fault has a twin if honest code could look like it to its check. The correctness check alone
    needs none: the project's implementation beside each case passes it.

    Attributes:
        name: name of the implementation, and of the function.
        does: what it does wrong or differently, in words.
        expect: the expected outcome.
        why: the check that detects it, or why none does, in words.
        needs: the kind of device that it needs; None: any.
        module: its module in `lmperf.selftest.planted`.
    """

    name: str
    does: str
    expect: Expected
    why: str
    needs: str | None = None
    module: str = "attention"

    @property
    def entry(self) -> str:
        return f"lmperf.selftest.planted.{self.module}:{self.name}"


@dataclass(frozen=True)
class Session:
    """A cell in which cases are measured together, beside an implementation of the project.

    Attributes:
        stem: the benchmark that measures them.
        neighbour: name of the project's implementation.
        cell: values of the axes.
        cuda: values that differ on CUDA.
    """

    stem: str
    neighbour: str
    cell: Mapping
    cases: tuple[Planted, ...]
    cuda: Mapping

    def grid(self, kind: str) -> dict[str, list]:
        """Return the cell on a kind of device (cpu, cuda or mps), as a grid for a configuration."""
        cell = {**self.cell, **(self.cuda if kind == "cuda" else {})}
        return {
            **{axis: [value] for axis, value in cell.items()},
            "implementation": [self.neighbour],
        }

    def left_out(self, case: Planted, machine: Machine) -> str | None:
        """Return why a case cannot run on a machine; None if it can."""
        if machine.devices < (least := load(self.stem).least_devices):
            return f"needs {least} devices"
        if case.needs not in (None, machine.kind):
            return f"needs a {case.needs.upper()} device"
        return None


def _twin(name: str, fault: str, does: str, needs: str | None = None) -> Planted:
    """A case that does what another one does, without the fault."""
    return Planted(name, does, OK, f"It is correct: the honest twin of {fault}.", needs)


_DIFFERS = "differs from the float64 reference"
_TIMED_CALL = "a timed call"
_BACKWARD = ("backward", "forward_backward")
_REFERENCE = "The gate compares each row with float64, relative to the rows around it."
_LARGE = f"{_DIFFERS} if the scores are large"
_SCORES = "The gate has a second set of inputs, whose scores are from -96 to 120."
_FRESH = (
    "Every call has fresh inputs in the same memory, and the results of randomly chosen timed calls"
    " are compared with the reference for their inputs."
)

_ATTENTION = (
    # Those that end their process come first: those before them are prepared once more.
    Planted(
        "leaves_a_busy_thread",
        "leaves a thread that never ends",
        Expected(("outlives",)),
        "The process must be idle after a call. One that is not is replaced.",
    ),
    Planted(
        "slows_the_clock",
        "makes each clock that the measuring code has bound 1000 times slower",
        Expected(("clock is wrong",)),
        "The supervisor compares the worker's clock with its own, in another process.",
    ),
    _twin("replaces_the_clock", "slows_the_clock", "replaces each clock by a right one"),
    Planted("drops_a_mask", "drops the causal mask in one head", Expected((_DIFFERS,)), _REFERENCE),
    Planted(
        "scales_a_gradient",
        "makes dk of one head 1 % too large",
        Expected((f"dk {_DIFFERS}",), _BACKWARD),
        "Each gradient is compared, as the output is.",
    ),
    Planted(
        "subtracts_no_maximum",
        "does not subtract the maximum of each row before the exponential",
        Expected((_LARGE,)),
        _SCORES,
    ),
    Planted(
        "subtracts_the_first_maximum",
        "subtracts the maximum over the first 64 keys only, whose scores may be masked",
        Expected((_LARGE,)),
        _SCORES,
    ),
    Planted(
        "caches_by_address",
        "returns the results of its first call with tensors at these addresses",
        Expected((_TIMED_CALL, _DIFFERS)),
        _FRESH,
    ),
    _twin(
        "caches_by_value",
        "caches_by_address",
        "returns the results of an earlier call whose tensors had the same values",
    ),
    Planted(
        "idle_at_the_start",
        "does no work in the first calls after a pause, with which every slice begins",
        Expected((_TIMED_CALL,), ("forward",)),
        "Every call of a slice may be the checked one: slices end at random lengths.",
    ),
    _twin("busy_at_the_start", "idle_at_the_start", "looks for pauses, but always works"),
    Planted(
        "finds_the_reference",
        "finds the gate's reference with gc.get_objects() and returns it",
        Expected((_TIMED_CALL, _DIFFERS)),
        "The reference of other inputs is computed after the call that it judges.",
    ),
    Planted(
        "reuses_its_output",
        "returns every result in the same memory",
        Expected(is_marked=True),
        "Two results that are both in use must not share memory. It is no wrong result by itself.",
    ),
    _twin("copies_its_output", "reuses_its_output", "returns copies of that memory"),
    Planted(
        "fills_in_a_thread",
        "returns a tensor that a thread is still filling",
        Expected((_TIMED_CALL, _DIFFERS, "outlives", "grows"), ("forward",)),
        "The result is copied when the clock stops.",
    ),
    _twin("waits_for_its_thread", "fills_in_a_thread", "waits until its thread ends"),
    Planted(
        "works_on_a_stream",
        "works on another stream without a dependency of the current one",
        Expected((_TIMED_CALL, _DIFFERS, "outlives"), ("forward",)),
        "The device may not work longer in a call than its events show.",
        needs="cuda",
    ),
    _twin(
        "waits_for_its_stream",
        "works_on_a_stream",
        "makes the current stream wait for the other one",
        needs="cuda",
    ),
    Planted(
        "changes_its_inputs",
        "changes a column of its keys",
        Expected(("inputs",)),
        "After a checked call its inputs are drawn again and must be unchanged.",
    ),
    Planted(
        "changes_settings",
        "leaves float64 as the default dtype, one thread, and another function in torch",
        OK,
        "What it changes is undone when a step of it ends, and in force again in the next one.",
    ),
    Planted(
        "needs_its_settings",
        "raises an error if what changes_settings has changed is in force",
        OK,
        "Each implementation is measured as if it were alone.",
    ),
    Planted(
        "leaks",
        "keeps 4 MiB in every seventh call",
        Expected(("grows",)),
        "Memory is looked at over more calls than a slice has.",
    ),
    _twin("keeps_the_last", "leaks", "keeps 4 MiB until the seventh call after"),
)
_TILE = Planted(
    "drops_a_tile",
    "drops one tile of 64 keys for 64 queries",
    Expected((_DIFFERS,)),
    _REFERENCE,
)
_REDUCTION = Planted(
    "leaves_out_a_gradient",
    "reduces all gradients but one",
    Expected(("differs from one process",)),
    "The gate compares weights and gradients of five steps with those of one process.",
    module="strategies",
)
_OVERLAP = Planted(
    "waits_in_hooks",
    "reduces each gradient asynchronously in the backward pass, and waits for it there",
    Expected(most_hidden=0.1),
    "The ledger intersects the times of collectives with those of computation.",
    module="strategies",
)

_CELL = {
    **{"batch": 1, "heads": 2, "d_head": 64, "dtype": "float32", "causal": True},
    **{"cuda_graph": False, "seq_len": 256},
}
_RANKED = {"size": "tiny", "context_length": 128, "batch": 4, "ranks": 2, "dtype": "float32"}
# An error in one tile of many is one that a norm over the whole result would hide.
_LONG = {**_CELL, "heads": 1, "seq_len": 2048}
SESSIONS = (
    Session(STEM, "eager", _CELL, _ATTENTION, cuda={"heads": 4, "seq_len": 2048}),
    Session(STEM, "sdpa", _LONG, (_TILE,), cuda={"seq_len": 65536, "dtype": "bfloat16"}),
    Session(RANKED_STEM, "one_by_one", _RANKED, (_REDUCTION,), cuda={}),
    Session(LEDGER_STEM, "overlapped", _RANKED, (_OVERLAP,), cuda={}),
)
