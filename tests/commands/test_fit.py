"""Tests of `lmperf fit` and of the closed forms behind it."""

import csv

import pytest

from lmperf.cli import main
from lmperf.devices import MEMORY_GIB, SHEETS
from lmperf.distributed.fit import RESERVED, STRATEGIES, Setting, least_gpus, memory_gib, need
from lmperf.errors import UserError
from lmperf.transformer.sizes import SIZES

XL = Setting(SIZES["3.4B"], 512, 2, "autocast_bfloat16")
GIB = 2**30


def test_ten_billion_parameters_fit_on_eight_gpus_only_if_sharded(capsys):
    command = ["fit", "--size", "10B", "--gpus", "8", "--device", "H200", "--format", "csv"]
    assert main(command) == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    fits = {(row["strategy"], row["checkpoints"]): row["fits"] for row in rows}
    assert len(fits) == 8 and fits["ZeRO-3, fully sharded", "yes"] == "yes"
    assert fits["data parallel", "yes"] == "no"


def test_text_has_a_line_for_each_strategy(capsys):
    assert main(["fit", "--size", "large", "--device", "24", "--no-checkpoint"]) == 0
    said = capsys.readouterr().out
    assert all(said.count(f"\n{name} ") == 1 for name in STRATEGIES)
    assert "0.97B" in said and "24 GiB" in said and "activations and buffers (GiB)" in said


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_least_number_fits_and_one_fewer_does_not(strategy, checkpointed):
    memory = 60 * GIB
    least = least_gpus(XL, strategy, checkpointed, memory)
    if least is None:
        assert strategy == "data parallel"
        return
    assert need(XL, strategy, checkpointed, least).total <= (1 - RESERVED) * memory
    assert least == 1 or not need(XL, strategy, checkpointed, least - 1).fits(memory)


def test_state_of_a_data_parallel_gpu_is_sixteen_bytes_a_parameter():
    found = need(XL, "data parallel", False, 8)
    assert found.parts["parameters"] + found.parts["optimizer"] == 12 * XL.size.parameters()
    sharded = need(XL, "ZeRO-1", False, 8)
    assert sharded.parts["optimizer"] == pytest.approx(found.parts["optimizer"] / 8, rel=1e-3)


def test_checkpoints_lower_the_peak_of_every_strategy():
    long = Setting(SIZES["3.4B"], 4096, 2, "autocast_bfloat16")
    for name in STRATEGIES:
        assert need(long, name, True, 4).total < need(long, name, False, 4).total


def test_every_data_sheet_has_its_memory():
    assert MEMORY_GIB.keys() == SHEETS.keys()
    assert memory_gib("nvidia h200") == memory_gib("141") == 141
    assert memory_gib("RTX 4090") == 24


@pytest.mark.parametrize(
    "text, message",
    [("H100", "ambiguous"), ("H300", "unknown device"), ("-3", "positive"), ("nan", "positive")],
)
def test_unclear_device_is_one_line_of_error(text, message, capsys):
    with pytest.raises(UserError, match=message):
        memory_gib(text)
    assert main(["fit", "--size", "3.4B", "--device", text]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_unknown_size_is_one_line_of_error(capsys):
    assert main(["fit", "--size", "xl", "--device", "H200"]) == 2
    assert "ambiguous" in capsys.readouterr().err
