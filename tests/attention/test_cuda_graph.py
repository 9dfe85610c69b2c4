import pytest
import torch

from lmperf.attention.cuda_graph import captured
from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention

PHASES = ("forward", "backward", "forward_backward")
SHAPE = (1, 2, 300, 32)


@pytest.mark.gpu
def test_step_reads_the_output_of_the_previous_replay():
    x = torch.ones(8, device="cuda")
    double, square = captured([lambda _: 2 * x, lambda twice: twice * twice])
    for value in (1.0, 3.0):
        x.fill_(value)
        double(None)
        assert square(None).tolist() == [4 * value**2] * 8


@pytest.mark.gpu
def test_graphed_attention_passes_the_gate_only_if_correct():
    problem = AttentionProblem(SHAPE, "float32", True, "cuda", 0)
    right = problem.workload(attention, PHASES, graphed=True)
    wrong = problem.workload(lambda q, k, v, causal: attention(q, k, v), PHASES, graphed=True)
    for name in PHASES:
        assert right.gate([name]).passed and not wrong.gate([name]).passed


@pytest.mark.gpu
@pytest.mark.parametrize("name", PHASES)
def test_graph_is_checked_on_fresh_inputs(name):
    from lmperf.attention.triton import flash_attention

    problem = AttentionProblem(SHAPE, "bfloat16", True, "cuda", 0)
    work = problem.workload(flash_attention, PHASES, graphed=True)
    phase = work.phases[name]
    for seed in range(4):
        work.freshen(seed)
        result = phase.run(phase.before())
        assert work.check(name, result).passed
    work.freshen(4)
    # Without `before`, the backward pass reads the output and logsumexp of old inputs.
    assert work.check(name, phase.run(None)).passed == (name != "backward")
