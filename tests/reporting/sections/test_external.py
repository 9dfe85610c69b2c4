"""Tables and sentences of implementations that are not lmperf's."""

import planted
import pytest

from lmperf.reporting.render import Page
from lmperf.reporting.sections import section


def kernel(ms, implementation="mine", **values):
    known = {"phase": "forward", "shape": "32768", "max_error": 1e-3, "error_bound": 2e-3}
    return planted.row("lrpe", ms=ms, implementation=implementation, **known | values)


def model(ms, implementation="my_model", **values):
    cell = {"size": "0.13B", "context_length": 256, "batch": 4, "dtype": "float32"}
    known = {"phase": "train_step", "parameters": 1.3e8, "flops": 1e12, "host_ms": 0.1}
    return planted.row("end_to_end", ms=ms, implementation=implementation, **cell | known | values)


def render(stem, *rows):
    """A page that shows nothing but the external implementations of a benchmark."""
    page = Page("parts/external", planted.evidence(*rows))
    page.text = page.render(stems=[stem])
    return page


def test_it_is_compared_with_the_fastest_of_the_others():
    rows = kernel(2), kernel(4, "triton"), kernel(1, "compiled")
    [one] = section(planted.evidence(*rows), "external").each("lrpe")
    other, gain, judged = one.fastest
    assert (other, gain.mean, tuple(judged)) == ("compiled", pytest.approx(0.5), (1, 1))


def test_kernel_is_compared_by_phase():
    rows = [
        kernel(1),
        kernel(2, "triton"),
        kernel(1, phase="backward"),
        kernel(4, "triton", phase="backward"),
    ]
    [said] = render("lrpe", *rows).said
    assert "forward 2.00x, backward 4.00x." in said


@pytest.mark.parametrize(("parameters", "other"), [(1.3e8, False), (1.2e8, True)])
def test_another_number_of_parameters_is_another_model(parameters, other):
    rows = [model(10, parameters=parameters, flops=8e11), model(20, "eager")]
    page = render("end_to_end", *rows)
    assert any("80.0 % of the FLOPs" in said for said in page.said) is other
