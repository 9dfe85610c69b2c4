"""An optimizer class of the user's: which are accepted, and the check against AdamW."""

import pytest
import torch

from examples.student_model import LanguageModel
from lmperf.benchmark import Implementation, Unsupported, WrongResult
from lmperf.own.optimizer import OwnOptimizer, plugged
from lmperf.own.signatures import fault_of
from lmperf.transformer.implementations import eager
from lmperf.transformer.steps import StepMaker

ENTRY = "examples.student_model:LanguageModel"


class AdamW(torch.optim.Optimizer):
    """As the hand-out writes it, with state of other names than torch's."""

    decays = True
    corrects = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for p in group["params"]:
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * p.grad
                v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * p.grad**2
                length = (1 - beta2**t) ** 0.5 / (1 - beta1**t) if self.corrects else 1.0
                p -= rate * length * m / (v.sqrt() + group["eps"])
                if self.decays:
                    p -= rate * group["weight_decay"] * p


class NoDecay(AdamW):
    decays = False


class NoCorrection(AdamW):
    corrects = False


class OtherBetas(AdamW):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, lr, eps=eps, weight_decay=weight_decay)


class NoStep(AdamW):
    """Its step does not reach the optimizer's own, as that of a captured graph."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.step = lambda: None


class Renamed(AdamW):
    def __init__(self, params, lr, betas, eps, decay):
        super().__init__(params, lr, betas, eps, decay)


def step_of(problem, dtype="float32"):
    given = problem.model, problem.optimizer, problem.tokens, problem.targets, dtype
    return StepMaker(eager).step(*given)


@pytest.mark.slow
@pytest.mark.parametrize("made", [AdamW, torch.optim.AdamW])
@pytest.mark.parametrize("model", [None, LanguageModel])
def test_adamw_in_both_forms_passes_gate_and_timed_check(problem_of, made, model):
    problem, dtype = problem_of(model, prepare=OwnOptimizer(made)), "autocast_bfloat16"
    step = step_of(problem, dtype)
    gate = problem.gate_run(step, dtype)
    assert gate.passed and set(gate.errors) == {"loss", "gradient", "gain", "update"}
    problem.freshen(7)
    assert problem.check(dtype, "train_step", problem.step_phase(step).run(None)).passed


@pytest.mark.slow
@pytest.mark.parametrize("made", [NoDecay, NoCorrection, OtherBetas, torch.optim.NAdam])
def test_another_update_than_adamws_fails_the_gate(problem_of, made):
    problem = problem_of(prepare=OwnOptimizer(made))
    gate = problem.gate_run(step_of(problem), "float32")
    assert gate.worst == "update" and gate.errors["update"] > 100 * gate.bounds["update"]
    assert "differs from the float64 reference after five steps of AdamW" in gate.columns["reason"]


def test_optimizer_without_a_step_is_refused(problem_of):
    problem = problem_of(prepare=OwnOptimizer(NoStep))
    with pytest.raises(WrongResult, match="the optimizer did not step exactly once per call"):
        problem.gate_run(step_of(problem), "float32")


@pytest.mark.parametrize(
    ("found", "kind", "words"),
    [
        (Renamed, "", "(params, lr=..., betas=..., eps=..., weight_decay=...): missing a required"),
        (AdamW, "model", "that is an optimizer class; try --as optimizer"),
        (LanguageModel, "optimizer", "must be a class that is derived from torch.optim.Optimizer"),
    ],
)
def test_refusal_says_how_an_optimizer_is_called(found, kind, words):
    assert words in fault_of(found, "model", kind) and not fault_of(AdamW, "model", "optimizer")


def test_optimizer_trains_the_model_that_is_named():
    named = Implementation("mine", origin="custom", models=[("own", ENTRY, {})])
    maker, build = plugged(named, AdamW)
    assert build.args == (LanguageModel,) and maker.prepare("float32") == OwnOptimizer(AdamW)
    assert plugged(Implementation("mine", origin="custom"), AdamW)[1] is None
    with pytest.raises(Unsupported, match="no optimizer for bfloat16 weights"):
        maker.prepare("bfloat16")


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (
            AdamW,
            {"models": [("step", "examples.student_step:train_step", {})]},
            "model: step is no",
        ),
        (LanguageModel, {"models": [("own", ENTRY, {})]}, "only a strategy or an optimizer trains"),
        (AdamW, {"compiles": True}, "compiled: only a model class is compiled"),
    ],
)
def test_keys_of_another_kind_of_implementation_are_refused(given, options, words):
    with pytest.raises(Unsupported, match=words):
        plugged(Implementation("mine", origin="custom", **options), given)
