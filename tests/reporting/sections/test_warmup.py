"""What the first step of a process costs, and in which part."""

import planted
import pytest

from lmperf.reporting.sections import section

LATER = (10.0, 20.0, 5.0)  # forward, backward, optimizer


def series(first=(110.0, 30.0, 15.0)):
    """The rows of a process whose first step has these parts."""
    for n in range(1, 16):
        parts = first if n == 1 else LATER
        times = dict(zip(("forward_ms", "backward_ms", "optimizer_ms"), parts, strict=True))
        yield planted.row("warmup", size="0.13B", step=n, step_ms=sum(parts), **times)


def warmup_of(*rows):
    return section(planted.evidence(*rows), "warmup")


def test_first_step_costs_what_it_takes_longer():
    found = warmup_of(*series())
    assert found.ratio.low == pytest.approx(155 / 35)
    assert found.cost.low == pytest.approx(120)
    assert found.share("forward").low == pytest.approx(100 / 120)
    assert found.part == "forward"


def test_mean_leaves_out_the_steps_of_the_warm_up():
    [row] = warmup_of(*series()).processes.frame.to_dict("records")
    assert row["after_0"] == pytest.approx((155 + 9 * 35) / 10)
    assert row["after_1"] == pytest.approx(35)
    assert row["after_1_std"] == pytest.approx(0)


@pytest.mark.parametrize(("forward", "stands"), [(13.0, True), (11.0, False)])
def test_first_step_must_be_longer_beyond_the_noise_floor(forward, stands):
    page = planted.page("end_to_end", planted.evidence(*series(first=(forward, 20.0, 5.0))))
    assert any(said.startswith("The first step") for said in page.said) is stands


@pytest.mark.parametrize("lost", [1, 2])
def test_process_without_its_first_steps_is_left_out(lost):
    rows = [row for row in series() if row["step"] != str(lost)]
    text = planted.page("end_to_end", planted.evidence(*rows)).text
    assert "first step of a process" not in text
