"""Speed-ups, their verdicts, and what a sentence may say of several."""

import pytest
from planted import evidence, row

from lmperf.reporting.gains import Gain, Tally, rows_over
from lmperf.reporting.words import NotMeasured

LENGTHS = (1024, 2048, 4096, 8192)


def kernels(factor, spread=1.0, **ours):
    """Ours is `factor` times as fast as cuDNN at four lengths."""
    return evidence(
        *(
            one
            for n in LENGTHS
            for one in (
                row("flash_attention", 1.0, implementation="sdpa_cudnn", seq_len=n),
                row(
                    "flash_attention",
                    1.0 / factor,
                    spread,
                    implementation="triton",
                    seq_len=n,
                    **ours,
                ),
            )
        )
    )


def found(here, stem="flash_attention", ours="triton", base="sdpa_cudnn"):
    return rows_over(here, stem, {"implementation": ours}, {"implementation": base})


@pytest.mark.parametrize(
    ("factor", "verdict", "words"),
    [
        (2.0, "faster", "2.00x"),
        (0.5, "slower", "0.50x"),
        (1.0, "same", "on par (1.00x)"),
    ],
)
def test_words_of_a_gain_follow_from_its_verdicts(factor, verdict, words):
    gain = Gain(found(kernels(factor)))
    assert {*gain.rows["verdict"]} == {verdict} and gain.verdict == verdict
    assert str(gain) == words and gain.mean == pytest.approx(factor)


def test_speed_up_needs_no_more_than_speed_ups_differ_by():
    """A second process took 1.2 times as long for all; its speed-ups were the same."""
    rows = [one | {"stem": "flash_attention"} for one in kernels(1.1).raw["flash_attention"]]
    again = [
        row("flash_attention", 1.2 * float(one["median_ms"]), key=one["key"], together="again")
        for one in rows
    ]
    here = evidence(*rows, again={"flash_attention": again})
    assert here.floors["kernel"] > 0.15 and {*found(here)["verdict"]} == {"faster"}


def test_cells_that_differ_are_not_on_par():
    parts = [kernels(factor).raw["flash_attention"] for factor in (1.2, 0.84)]
    rows = [one | {"stem": "flash_attention"} for part in parts for one in part]
    for one in rows[len(rows) // 2 :]:
        one["d_head"] = "32"
    gain, tally = (make(found(evidence(*rows))) for make in (Gain, Tally))
    assert gain.verdict == "mixed" and str(gain) == "0.84x to 1.20x"
    assert str(tally) == "0.84x to 1.20x (faster in 4, slower in 4)"


def test_noisy_gain_says_nothing():
    with pytest.raises(NotMeasured):
        str(Gain(found(kernels(1.05, spread=200))))


def test_failed_check_withholds_the_speed_up():
    rows = found(kernels(2.0, status="failed_check"))
    assert rows["ratio"].isna().all() and {*rows["why"]} == {"withheld"}


def steps(*pairs_of):
    made = []
    for implementation, values in pairs_of:
        made.append(row("end_to_end", phase="train_step", implementation=implementation, **values))
    return found(evidence(*made), "end_to_end", "compiled", "eager")


@pytest.mark.parametrize(
    ("other", "compared"), [({}, True), ({"gpus": "GPU-2"}, False), ({"environment": "e2"}, False)]
)
def test_steps_are_compared_on_one_gpu_with_one_software(other, compared):
    rows = steps(("eager", {"ms": 20.0}), ("compiled", {"ms": 10.0, "together": "two"} | other))
    assert rows["ratio"].notna().all() == compared


def test_step_that_waited_is_compared_but_not_judged():
    rows = steps(("eager", {"ms": 20.0, "bound": "host"}), ("compiled", {"ms": 10.0}))
    assert rows["ratio"].iloc[0] == pytest.approx(2.0)
    assert rows["verdict"].iloc[0] == "unresolved" and rows["waits"].iloc[0]


def test_gain_counts_and_orders_its_cells():
    gain = Gain(found(kernels(2.0)))
    assert str(gain.faster) == "4 of 4" and str(gain.slower) == "0 of 4"
    assert gain.faster_from("seq_len") == 1024
    assert [value for value, _ in gain.by("seq_len")] == [*LENGTHS]
    assert gain > 1.5 and not gain < 1
