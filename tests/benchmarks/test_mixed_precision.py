"""Cells of the benchmark on mixed precision."""

from lmperf.benchmarks import load


def test_grid_with_a_sum_and_a_model_gives_the_cells_of_both():
    grid = {"subject": ["float32 + float32", "toy"], "implementation": ["eager"]}
    found = {
        (case.axes["experiment"], case.axes["subject"])
        for case in load("mixed_precision").cases("cpu", grid)
    }
    assert found == {("accumulation", "float32 + float32"), ("dtypes", "toy")}
