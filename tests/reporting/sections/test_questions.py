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


def lrpe(implementation, ms, shape="32768", **values):
    for phase in ("forward", "backward"):
        cell = {"batch": 12, "heads": 12, "d_head": 128, "dtype": "bfloat16", "extra_tokens": 0}
        cell |= {"shape": shape, "together": shape, "phase": phase}
        yield planted.row("lrpe", ms, implementation=implementation, bytes=1e9, **cell, **values)


def of(*rows, stem="questions", **more):
    return section(stem, planted.evidence(*rows, **more))


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


def profiled_waits(wall):
    return of(*model(), *profiled(wall, matmul=(10, 145))).confirmed["waits"].all()


def waited_when_timed(host_ms):
    rows = [timed(30, host_ms=host_ms), *profiled(matmul=(33, 145))]
    return of(*rows).confirmed["waits"].all()


def recorded():
    """A recorded train step that peaks as the backward begins."""
    owners = ("parameters", "optimizer", "inputs", "gradients", "activations", "temporary")
    known = dict.fromkeys((f"{name}_mib" for name in owners), 1) | CELL
    kinds = [("phase", "forward", 0), ("phase", "end", 9), ("curve", None, 1)]
    return [
        planted.row("memory_timeline", table=kind, name=name, position=at, **known)
        for kind, name, at in kinds
    ]


def peaks_late(gradients):
    known = {"phase": "train_step", "gradients_mib": gradients, "activations_mib": 100}
    rows = [*recorded(), planted.row("memory", **CELL, **known)]
    return of(*rows, stem="questions_memory").ends == [(True, [256])]


def time_is_square(longest):
    rows = attention({4096: 1, 16384: longest})
    return of(*rows, stem="questions_memory").time_is_square


def varies(cube):
    rows = [*lrpe("triton", 1), *lrpe("triton", 1, "32x32x32")]
    rows += [*lrpe("compiled", 2), *lrpe("compiled", cube, "32x32x32")]
    return len(of(*rows, stem="questions_memory").varying("axes")) == 2


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        (profiled_waits, 11.1, 10.9),
        (waited_when_timed, 29, 0.1),
        (peaks_late, 101, 99),
        (time_is_square, 14.1, 17.1),
        (varies, 2.5, 2.3),
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
