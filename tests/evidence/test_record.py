"""Tests of what a new run learns from the rows of earlier runs."""

from types import SimpleNamespace

from lmperf.evidence.record import best_of_host


def test_best_times_of_the_host_come_from_this_environment():
    def row(environment, python_us, launch_us=""):
        return {"environment": environment, "python_us": python_us, "launch_us": launch_us}

    rows = [row("here", "900.0"), row("here", "880.5"), row("other", "10.0"), row("here", "")]
    plans = {
        "attention": SimpleNamespace(known=[*rows, {"environment": "here"}]),
        "lrpe": SimpleNamespace(known=[row("here", "950.0", "5.5")]),
    }
    project = SimpleNamespace(plans=plans, machine=SimpleNamespace(environment="here"))
    assert best_of_host(project) == {"python_us": 880.5, "launch_us": 5.5}
    project.plans = {}
    assert best_of_host(project) == {}
