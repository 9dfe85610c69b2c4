"""What the processes of a group run in tests of collectives."""

from lmperf.benchmarks import load


def gates_of_cells(rank):
    """(dtype, operation) -> columns of the gate, of cells of one size of the benchmark."""
    benchmark, found = load("collectives"), {}
    for dtype in ("float32", "bfloat16"):
        shared, cell = {}, {"dtype": [dtype], "message_bytes": [1024], "ranks": [rank.ranks]}
        for case in benchmark.cases("cpu", cell):
            workload = benchmark.prepare_rank(case, rank, 3, shared)
            found[dtype, case.axes["operation"]] = workload.gate(["forward"]).columns
    return found
