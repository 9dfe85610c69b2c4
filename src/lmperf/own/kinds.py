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

# Kind of implementation, as the option --as names it -> what the benchmarks for it take.
KINDS = {
    "attention": ATTENTION,
    "lrpe": LRPE,
    **dict.fromkeys(("model", "train_step", "optimizer"), MODEL),
    **dict.fromkeys(("ddp", "fsdp", "sharded_optimizer"), STRATEGY),
}
