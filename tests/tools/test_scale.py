"""Tests of the script that measures how commands grow with the evidence."""

import pytest
import scale
from scale import Cost


def cost(cpu_s):
    return Cost(cpu_s, 0.0, 0.0)


def test_quadratic_growth_has_exponent_two_beyond_start_up():
    found = {(1, 10): cost(5.0), (10, 10): cost(6.0), (100, 10): cost(105.0)}
    assert scale.exponents(found) == ["10x10 -> 100x10: 2.00"]


def test_steps_that_differ_in_both_numbers_are_not_compared():
    found = {(1, 10): cost(5.0), (10, 100): cost(6.0), (100, 10): cost(9.0)}
    assert scale.exponents(found) == []


def test_failed_command_is_an_error_with_its_output(tmp_path):
    (tmp_path / "src").mkdir()
    with pytest.raises(RuntimeError, match="1: what is wrong"):
        scale.spend(tmp_path, ("sh", "-c", "echo what is wrong; exit 1"))


@pytest.mark.process
@pytest.mark.snakemake
@pytest.mark.slow
def test_synthetic_checkout_has_nothing_due_until_its_code_changes(tmp_path):
    root = tmp_path / "checkout"
    scale.checkout(root, 2, 20)
    costs = scale.measured(root, ["noop", "diff", "dry"])
    assert all(cost.cpu_s > 0 and cost.peak_mib > 10 for cost in costs.values())
    said = (root / "output.txt").read_text()
    assert "synthetic_0" in said and "20 of 20 cases to measure (20 stale)" in said
