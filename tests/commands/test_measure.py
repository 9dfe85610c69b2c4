"""Tests of `lmperf measure`, as a user runs it by hand and as the workflow runs it."""

import pytest
from made_up import pretend

from lmperf.evidence import record


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_interrupted_measurement_says_that_it_goes_on(lmperf, monkeypatch):
    monkeypatch.setattr(record, "record", interrupted)
    code, _, said = lmperf("measure", "flash_attention")
    assert (code, len(said.split("\n"))) == (130, 3)  # click ends the line of ^C
    assert "lmperf: interrupted; what was measured is stored, and the same command goes on" in said


def measured_groups(lmperf, monkeypatch, *options):
    """The groups of a grid of two lengths that `lmperf measure` measures."""
    found = pretend(monkeypatch)
    lengths = ("--config", "grid.flash_attention.seq_len=[16,32]")
    assert lmperf("measure", "flash_attention", *lengths, *options)[0] == 0
    return [(group[0].axes["seq_len"], len(group)) for group in found]


def test_only_measures_the_whole_groups_of_the_selected_cases(lmperf, monkeypatch):
    only = ("--only", "seq_len=32,implementation=eager")
    [(long, cases)] = measured_groups(lmperf, monkeypatch, *only)
    assert cases > 1 and long == 32
    assert measured_groups(lmperf, monkeypatch) == [(16, cases)], "the rest"
    assert measured_groups(lmperf, monkeypatch, "--force") == [(16, cases), (32, cases)]


def test_only_with_a_value_outside_the_grid_is_an_error(lmperf):
    code, _, said = lmperf("measure", "flash_attention", "--only", "seq_len=17")
    assert code == 2 and "no seq_len=17 in the grid" in said


@pytest.mark.parametrize("name", ["lrpe", "nothing"])
def test_benchmark_must_be_measured_here(lmperf, name):
    code, _, said = lmperf("measure", name)
    assert code == 2 and f"{name} is not measured on this machine" in said
