"""Tests of the wait for a machine at rest."""

import itertools

import pytest

from lmperf.errors import UserError
from lmperf.measuring.rest import wait_for_rest
from lmperf.measuring.state import Before, State


class Watching:
    """A machine whose load follows a list; its last value stays."""

    def __init__(self, *loads):
        self.loads, self.seen = list(loads), 0

    def before(self, seconds):
        load = self.loads[min(self.seen, len(self.loads) - 1)]
        self.seen += 1
        return Before(2, None, State(other_load=load))


def wait(*loads):
    watching, said, seconds = Watching(*loads), [], itertools.count(step=10)
    wait_for_rest(watching, said.append, 100, lambda: next(seconds))
    return watching.seen, said


def test_machine_at_rest_is_not_waited_for():
    assert wait(0.0) == (3, [])


def test_wait_names_the_load_once_and_ends_with_it():
    seen, said = wait(0.5, 0.5, 0.0, 0.5, 0.01)
    assert seen == 7
    assert said == [
        "waiting up to 100 s until this machine is at rest: other processes use 1.0 of 2 cores"
    ]


def test_machine_that_stays_at_work_is_given_up():
    with pytest.raises(UserError, match=r"still at work after 100 s: other .* of 2 cores; nothing"):
        wait(0.5)


def test_machine_without_a_known_load_is_not_waited_for():
    assert wait(None) == (3, [])
