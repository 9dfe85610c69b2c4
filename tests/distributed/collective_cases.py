"""What the processes of a group run in tests of collectives."""

from __future__ import annotations

from lmperf.benchmarks import load
from lmperf.distributed.collectives import LIBRARY, Message


def one_element_off(target, source, rank):
    """An all-reduce whose last element is wrong by 1 on the last rank."""
    run = LIBRARY["all_reduce"](target, source, rank)

    def wrong():
        run()
        target[-1] += rank.number == rank.ranks - 1
        return target

    return wrong


def own_input(target, source, rank):
    """An all-reduce that leaves every rank its own input."""
    return lambda: target


def wrong_elements(message, operation, prepare):
    """Wrong elements of a call on each of two inputs."""
    phase, found = message.phase(operation, prepare), []
    for seed in (7, 99):
        message.freshen(seed)
        gate = message.check(operation, phase.run(phase.before()))
        found.append(gate.errors["wrong_elements"])
    return tuple(found)


def all_operations(rank):
    """(dtype, operation or broken all-reduce) -> `wrong_elements`."""
    found = {}
    for dtype in ("float32", "bfloat16"):
        message = Message(dtype, 2400, rank, seed=7)
        operations = [name for name in LIBRARY if name != "copy" or rank.ranks == 2]
        for name in operations:
            found[dtype, name] = wrong_elements(message, name, LIBRARY[name])
        for broken in (one_element_off, own_input):
            found[dtype, broken.__name__] = wrong_elements(message, "all_reduce", broken)
    return found


def gates_of_cell(rank):
    """Operation -> columns of the gate, of the cells of one size of the benchmark."""
    benchmark, shared, found = load("collectives"), {}, {}
    cell = {"dtype": "bfloat16", "message_bytes": 1024, "ranks": rank.ranks}
    for case in benchmark.cases("cpu", {name: [value] for name, value in cell.items()}):
        workload = benchmark.prepare_rank(case, rank, 3, shared)
        found[case.axes["operation"]] = workload.gate(["forward"]).columns
    return found
