"""Kinds of implementations that are not the project's own, and how a benchmark loads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lmperf.benchmark import Implementation, Unsupported
from lmperf.own.imported import imported
from lmperf.own.signatures import bound, fault_of


@dataclass(frozen=True)
class Taken:
    """What a benchmark takes: its attribute `takes`.

    Attributes:
        name: a key of `signatures.TAKES`.
        adapters: the modules that make such an implementation comparable; keys of its rows count
            them.
    """

    name: str
    adapters: tuple[str, ...] = ()

    def load(self, implementation: Implementation) -> Callable:
        """Import the function or class of an implementation and bind its options.

        Raises:
            Unsupported: it is not what the benchmark takes.
        """
        called = imported(implementation.entry)
        if fault := fault_of(called, self.name, options=implementation.options):
            raise Unsupported(f"{implementation.entry}: {fault}")
        return bound(called, implementation.options)


ATTENTION = Taken("attention", ("lmperf.own.attention",))
LRPE = Taken("lrpe")
MODEL = Taken("model", ("lmperf.own.model", "lmperf.own.optimizer"))
STRATEGY = Taken("strategy", ("lmperf.own.model", "lmperf.own.strategy"))


@dataclass(frozen=True)
class Kind:
    """A kind of implementation, as `lmperf try --as` names it.

    Attributes:
        takes: what the benchmarks that can measure it take.
        tried: stem of the benchmark in which `lmperf try` measures it.
        beside: its nearest peers, which are measured beside it instead of those of the benchmark's
            `trials`.
        name: what `lmperf init` calls it in the configuration.
        measured: stems of the benchmarks that measure it; empty: all that take it.
    """

    takes: Taken
    tried: str
    beside: tuple[str, ...] = ()
    name: str = "mine"
    measured: tuple[str, ...] = ()


KINDS = {
    "attention": Kind(ATTENTION, "flash_attention"),
    "lrpe": Kind(LRPE, "lrpe"),
    "model": Kind(MODEL, "end_to_end"),
    "train_step": Kind(MODEL, "end_to_end", name="my_step", measured=("end_to_end",)),
    "optimizer": Kind(
        MODEL,
        "end_to_end",
        beside=("eager",),
        name="my_optimizer",
        measured=("end_to_end", "profiles", "warmup"),
    ),
    "ddp": Kind(STRATEGY, "distributed", ("ddp",), "my_ddp"),
    "fsdp": Kind(STRATEGY, "distributed", ("fsdp2",), "my_fsdp"),
    "sharded_optimizer": Kind(
        STRATEGY, "distributed", ("zero_redundancy",), "my_sharded_optimizer"
    ),
}
