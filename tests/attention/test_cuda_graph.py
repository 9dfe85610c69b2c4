import pytest
import torch

from lmperf.attention.cuda_graph import Graphed
from lmperf.attention.problem import AttentionProblem
from lmperf.attention.reference import attention


@pytest.mark.gpu
def test_a_replay_computes_with_the_inputs_of_the_moment():
    x = torch.ones(8, device="cuda")
    double = Graphed(lambda _: 2 * x)
    assert double().tolist() == [2.0] * 8
    x.fill_(3.0)
    assert double().tolist() == [6.0] * 8


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["forward", "backward", "forward_backward"])
def test_attention_as_a_graph_passes_its_gate_and_a_wrong_one_does_not(name):
    phases = ["forward", "backward", "forward_backward"]
    problem = AttentionProblem((1, 2, 300, 32), "float32", True, "cuda", 0)
    right = problem.workload(attention, phases, graphed=True)
    assert right.gate([name]).passed
    wrong = problem.workload(lambda q, k, v, causal: attention(q, k, v), phases, graphed=True)
    assert not wrong.gate([name]).passed
