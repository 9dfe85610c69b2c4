"""What an implementation changes is in force for it alone."""

import builtins
import gc
import importlib
import os
import random
import signal
import sys
import warnings

import numpy
import pytest
import torch
import torch.nn.functional as F
import toys
from torch.utils._python_dispatch import BaseTorchDispatchMode

from lmperf.benchmark import Case
from lmperf.measuring.case_steps import CaseSteps
from lmperf.measuring.failures import Failed
from lmperf.measuring.isolation import Worlds, _autocast_depth, _is_function
from lmperf.measuring.ranks import Alone


@pytest.fixture(scope="module")
def worlds():
    """Worlds of a process in which the first steps have been."""
    return Worlds()


def slow_attention(q, k, v, **options):
    return q


def computed():
    """A result of torch that depends on whether denormals are flushed."""
    return float(torch.tensor([1e-40]) * 1)


def set_environment():
    os.environ["LMPERF_TEST_ISOLATION"] = "1"


def patch_sdpa():
    F.scaled_dot_product_attention = slow_attention


def patch_a_class():
    torch.nn.Linear.forward = slow_attention
    torch.Tensor.softmax = slow_attention  # which Tensor has from its base class


def hook(*_):
    return None


# What changes a setting, and what reads it.
CHANGES = {
    "threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "default device": (
        lambda: torch.set_default_device("meta"),
        lambda: (torch.ones(1).device.type, torch.get_default_device().type),
    ),
    "gradients": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        torch.get_deterministic_debug_mode,
    ),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), torch.is_anomaly_enabled),
    "denormals": (lambda: torch.set_flush_denormal(True), computed),
    "precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: (torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32),
    ),
    "TF32 of cuDNN": (
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: torch.backends.cudnn.allow_tf32,
    ),
    "backends of SDPA": (
        lambda: torch.backends.cuda.enable_flash_sdp(False),
        torch.backends.cuda.flash_sdp_enabled,
    ),
    "autocast": (
        lambda: torch.autocast("cpu", torch.float16).__enter__(),
        lambda: (
            *(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
            _autocast_depth(),
        ),
    ),
    "options of the compiler": (
        lambda: setattr(torch._inductor.config, "max_autotune", True),
        lambda: torch._inductor.config.max_autotune,
    ),
    "hooks of all modules": (
        lambda: torch.nn.modules.module.register_module_forward_hook(hook),
        lambda: len(torch.nn.modules.module._global_forward_hooks),
    ),
    "random state of torch": (lambda: torch.manual_seed(5), torch.initial_seed),
    "random state of Python": (lambda: random.seed(5), random.getstate),
    "random state of NumPy": (lambda: numpy.random.seed(5), lambda: numpy.random.get_state()[2]),
    "environment": (set_environment, lambda: os.environ.get("LMPERF_TEST_ISOLATION")),
    "current folder": (lambda: os.chdir("/"), os.getcwd),
    "sys.path": (lambda: sys.path.insert(0, "/nowhere"), lambda: sys.path[0]),
    "warnings": (lambda: warnings.simplefilter("error"), lambda: warnings.filters[0]),
    "garbage collection": (gc.disable, gc.isenabled),
    "signals": (
        lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        lambda: signal.getsignal(signal.SIGCHLD),
    ),
    "print": (lambda: setattr(builtins, "print", hook), lambda: print),
    "SDPA": (patch_sdpa, lambda: F.scaled_dot_product_attention),
    "methods": (patch_a_class, lambda: (torch.nn.Linear.forward, torch.Tensor.softmax)),
}


@pytest.mark.parametrize("change, read", CHANGES.values(), ids=CHANGES)
def test_a_change_holds_for_its_implementation_alone(change, read, worlds, request):
    name, before = request.node.name, read()
    with worlds.of(name):
        change()
        changed = read()
    assert read() == before != changed and not worlds.lasting
    with worlds.of("another"):
        assert read() == before
    with worlds.of(name, often=True):
        assert read() == changed
        with worlds.of(None):
            assert read() == before, "in the project's code in its step"
        assert read() == changed
    assert read() == before and not worlds.lasting


@pytest.mark.gpu
def test_cuda_state_holds_for_its_implementation_alone(worlds):
    torch.cuda.manual_seed(3)
    alone, stream = torch.rand(4, device="cuda"), torch.cuda.current_stream()
    torch.cuda.manual_seed(3)
    with worlds.of("of CUDA"):
        torch.cuda.manual_seed(5)
        torch.cuda.set_stream(torch.cuda.Stream())
        torch.cuda.set_per_process_memory_fraction(0.5)
        torch.backends.cudnn.benchmark = True
    assert torch.equal(torch.rand(4, device="cuda"), alone)
    assert torch.cuda.current_stream() == stream and not torch.backends.cudnn.benchmark
    assert torch.cuda.get_per_process_memory_fraction() == 1.0 and not worlds.lasting


def steps_of_mine(told):
    """The steps of an implementation of the user's, whose messages go into a list; and its case."""
    benchmark = toys.Toy("toy", {"mine": "toys:doubles"})
    mine = Case(benchmark.cases("cpu")[0].cell, "mine")

    def tell(**message):
        told.append(message)

    return CaseSteps(benchmark, [mine], "cpu", Alone(), tell, Worlds()), mine


@pytest.mark.filterwarnings("ignore")
def test_step_that_changes_what_stays_ends_its_process(monkeypatch):
    monkeypatch.setattr(os, "_exit", sys.exit)
    aten, told = torch.library.Library("aten", "IMPL"), []
    steps, mine = steps_of_mine(told)
    with pytest.raises(SystemExit):
        steps.run("first call", mine, "forward", lambda: aten.impl("lgamma", hook, "CPU"))
    aten._destroy()
    assert told[-1] == {"changed": "operators of PyTorch"}


@pytest.mark.parametrize("fails", [False, True])
def test_step_that_moves_to_another_device_says_so(monkeypatch, fails):
    current, told = [0], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: current.__setitem__(0, number))
    steps, mine = steps_of_mine(told)

    def call():
        torch.cuda.set_device(1)
        if fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(Failed) as failed:
        steps.run("first call", mine, "forward", call)
    assert failed.value.row["status"] == "unsupported" and current == [0]
    assert "torch.cuda.set_device" in failed.value.row["reason"]
    assert not any("traceback" in message for message in told)


def test_a_change_after_some_slices_is_undone_too(worlds):
    before = F.scaled_dot_product_attention, torch.get_default_dtype()
    with worlds.of("late"):
        pass
    with worlds.of("late", often=True):
        patch_sdpa()
        torch.set_default_dtype(torch.float64)
    assert (F.scaled_dot_product_attention, torch.get_default_dtype()) == before


def test_random_numbers_of_others_stay_as_they_are(worlds):
    torch.manual_seed(3)
    alone = torch.rand(4)
    torch.manual_seed(3)
    drawn = []
    for _ in range(2):
        with worlds.of("draws"):
            drawn.append(float(torch.rand(1)))
    assert torch.equal(torch.rand(4), alone) and drawn[0] != drawn[1]


def test_an_import_counts_for_all_of_its_module(worlds, tmp_path, monkeypatch):
    (tmp_path / "sets_on_import.py").write_text(
        "import torch\ntorch.set_default_dtype(torch.half)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with worlds.of("one", "sets_on_import"):
        importlib.import_module("sets_on_import")
    with worlds.of("one", "sets_on_import"):
        torch.use_deterministic_algorithms(True)
    with worlds.of("two", "sets_on_import"):
        assert torch.get_default_dtype() == torch.half
        assert not torch.are_deterministic_algorithms_enabled(), "set by a call, not the import"
    assert torch.get_default_dtype() == torch.float32


def test_operators_of_its_own_are_no_change(worlds):
    with worlds.of("has_operators"):
        own = torch.library.Library("isolated", "DEF")
        own.define("twice(Tensor x) -> Tensor")
        own.impl("twice", lambda x: x * 2, "CPU")
        assert torch.ops.isolated.twice(torch.ones(1)) == 2
    assert not worlds.lasting
    own._destroy()


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_put_back_is_named():
    worlds, alone = Worlds(), Worlds(apart=True)
    aten, mode = torch.library.Library("aten", "IMPL"), BaseTorchDispatchMode()
    hooks = torch.autograd.graph.saved_tensors_hooks(hook, hook)
    with alone.of("alone"), worlds.of("one"):
        aten.impl("lgamma", lambda x: x, "CPU")
        hooks.__enter__()
        mode.__enter__()
    mode.__exit__(None, None, None)
    hooks.__exit__()
    aten._destroy()
    lasting = ["modes of torch", "operators of PyTorch", "hooks of saved tensors"]
    assert worlds.lasting == lasting and not alone.lasting


def test_a_world_that_is_gone_leaks_no_other_of_its_changes(worlds, tmp_path):
    folder, before = tmp_path / "gone", os.getcwd()
    folder.mkdir()
    with worlds.of("in a folder"):
        os.chdir(folder)
        torch.set_default_dtype(torch.float64)
    folder.rmdir()
    with worlds.of("in a folder"):
        assert torch.get_default_dtype() == torch.float64
    assert torch.get_default_dtype() == torch.float32 and os.getcwd() == before


def test_deprecated_names_of_torch_do_not_warn():
    import torch.distributed as dist

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _is_function(dist.reduce_op)
