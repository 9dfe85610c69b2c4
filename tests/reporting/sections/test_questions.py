"""Course questions: which answers stand, on both sides of each threshold, and their links."""

import itertools
import re
from statistics import stdev

import planted
import pytest

from lmperf.errors import UserError
from lmperf.reporting.html import to_html
from lmperf.reporting.render import Page
from lmperf.reporting.sections import section

CELL = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
KERNELS = {"matmul": "nvjet_tst", "reduction": "softmax_warp", "optimizer": "multi_tensor_apply"}


def timed(ms, implementation="eager", phase="train_step", spread=0.01, **values):
    known = {"host_ms": 0.1, "together": "one", "spread": spread / stdev(planted.ROUNDS)}
    known |= CELL | {"implementation": implementation, "phase": phase}
    return planted.row("end_to_end", ms, **(known | values))


def model(step=30, **values):
    """A forward of 10 ms, a backward of 20 and a step."""
    phases = {"forward": 10, "backward": 20, "train_step": step}
    return [timed(ms, phase=phase, **values) for phase, ms in phases.items()]


def profiled(wall=None, dtype="float32", **classes):
    """The phases of a float32 model of 36 layers; classes: class of kernels -> ms, calls."""
    for phase, (name, (ms, calls)) in itertools.product(
        ("forward", "forward_backward", "train_step"), classes.items()
    ):
        known = CELL | {"table": "kernel", "implementation": "eager", "phase": phase}
        known |= {"dtype": dtype, "wall_ms": wall or sum(one for one, _ in classes.values())}
        yield planted.row("profiles", name=KERNELS[name], total_ms=ms, instances=calls, **known)


def attention(times, phases=("forward", "backward"), **values):
    """Plain attention; times: length -> ms."""
    for (length, ms), phase in itertools.product(times.items(), phases):
        cell = {"batch": 8, "seq_len": length, "d_head": 64, "dtype": "float32", "causal": False}
        known = {"implementation": "eager", "phase": phase, "peak_mib": length}
        yield planted.row("attention", ms, **(cell | known | values))


def of(*rows):
    return section("questions", planted.evidence(*rows))


def answers(*rows, **more):
    """The beginning of each question that is answered -> its answer."""
    return planted.page("questions", planted.evidence(*rows, **more)).said


def answer(question, *rows):
    """The answer to the question that begins so, or None."""
    return next((one for one in answers(*rows) if one.startswith(f"**{question}")), None)


@pytest.mark.parametrize(
    ("ms", "said"), [(15, "step 2.00 "), (60, "step 0.50 "), (0, None)], ids=str
)
def test_answer_on_compiling_follows_the_data(ms, said):
    ours = [timed(ms, "compiled_blocks")] if ms else []
    found = answer("How much does `torch.compile` help", timed(30), *ours)
    assert said in found if said else found is None


def waited_when_timed(host_ms):
    rows = [timed(30, host_ms=host_ms), *profiled(matmul=(33, 145))]
    return of(*rows).confirmed["waits"].all()


def time_is_square(longest):
    rows = attention({4096: 1, 16384: longest})
    return of(*rows).time_is_square


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        (waited_when_timed, 29, 0.1),
        (time_is_square, 14.1, 17.1),
    ],
)
def test_claim_holds_on_one_side_of_its_threshold(claim, holds, fails):
    assert claim(holds) and not claim(fails)


def test_errors_of_a_float16_sum_add_up():
    known = {"experiment": "accumulation", "subject": "float16 + float16", "exact": 10}
    found = answer("Why 9.9531", planted.row("mixed_precision", value=9.953125, **known))
    errors = [float(one) for one in re.findall(r"[+-][0-9]\.[0-9]{2}", found)]
    assert len(errors) == 3 and 10 + sum(errors) == pytest.approx(9.953, abs=0.01)


def test_links_lead_to_the_headings_of_tables():
    places = of().places
    text = to_html(planted.page("end_to_end", planted.evidence(*model())).text)
    page, anchor = places["E1"].split("#")
    assert page == "end_to_end.md" and f'id="{anchor}"' in text
    assert places["P1"] == "profiles.md"


def test_unknown_table_of_a_question_is_an_error(tmp_path):
    block = "{% block page %}{{ section('questions').places['E99'] }}{% endblock %}"
    text = '{% extends "lmperf/questions.md.j2" %}' + block
    (tmp_path / "questions.md.j2").write_text(text)
    with pytest.raises(UserError, match="E99"):
        Page("questions", planted.evidence(), own=tmp_path).render()
