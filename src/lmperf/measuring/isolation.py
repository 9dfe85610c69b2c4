"""Keeps what an implementation changes in its process from all others.

An import or a call may change settings of torch and Python, random state, the environment, or
functions of torch. These changes are the implementation's world: undone when a step of it ends, in
force again when the next one begins. So each implementation is measured as if it were alone, under
the settings that its author has chosen. What has changed is found by comparison.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import math
import os
import pickle
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from operator import is_
from types import ModuleType
from typing import Any

import torch
from torch.utils import _device, _python_dispatch
from torch.utils._config_module import _UNSET_SENTINEL as _UNSET

# Packages whose functions and classes run in calls of several implementations.
_PACKAGES = {"torch", "triton", "transformers", "flash_attn", "liger_kernel", "torchao"}
# Modules and classes that are compared even after a slice of calls.
_OFTEN: tuple[Any, ...] = (
    *(torch, torch.nn.functional, torch.Tensor, torch.nn.Module, torch.autograd.Function),
    *(torch.optim.Optimizer, torch.autograd, torch.cuda, builtins, math, time, random),
)
_CONFIGS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental._config")
_HOOKS = ("torch.nn.modules.module", "torch.optim.optimizer")
_GETTERS = {"_get_": "_set_", "get_": "set_", "_is_": "_set_", "is_": "set_"}
# Getters that tell a part of a setting, or another view of one that `_torch_settings` has.
_NOT_PAIRS = {"_get_deterministic_algorithms", "_get_thread_name", "_get_tracing_state"}
_NOT_PAIRS |= {"is_anomaly_enabled", "is_autocast_enabled", "_get_cublas_allow_tf32"}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD)
_SMALL = [5e-324]  # a denormal, where Python does not fold a product with it
# Lines of an operator's registrations that do not decide what computes it.
_DESCRIBING = ("Meta", "debug", "name", "schema", "alias")
_ABSENT = object()


@dataclass(frozen=True)
class _Setting:
    """A setting of the process.

    Attributes:
        read: returns the value; None: unknown.
        put: sets a value; None: it cannot be put back.
        seldom: whether it is not compared after slices: it takes long to read.
    """

    read: Callable[[], Any]
    put: Callable[[Any], Any] | None = None
    seldom: bool = False


@dataclass
class _World:
    """What an implementation has changed.

    Attributes:
        settings: name -> value.
        names: id of a module or class, and a name in it -> the module or class, and the value.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    names: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)

    def copy(self) -> _World:
        return _World({**self.settings}, {**self.names})


class Worlds:
    """The worlds of the implementations that are not the project's own.

    Args:
        apart: whether this process measures one implementation alone, which may change what cannot
            be put back.

    Attributes:
        lasting: what has been changed and cannot be put back, in words; empty if `apart`.
    """

    def __init__(self, apart: bool = False) -> None:
        self.apart, self.lasting = apart, []
        self._worlds: dict[str, _World] = {}
        self._inside: tuple[str, bool] | None = None
        self._settings: dict[str, _Setting] = {}
        self._before: dict[str, Any] = {}
        # Id of a module or class -> itself and its names, as nobody has changed them.
        self._known: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._operators: tuple[Any, dict[str, str]] = (None, {})
        self._seen = 0

    @contextmanager
    def of(self, name: str | None, module: str = "", often: bool = False) -> Iterator[None]:
        """A context for a step of an implementation; with None, for the project's code in one.

        Args:
            name: of the implementation.
            module: where it is. What a step changes that imports the module holds for all
                implementations there.
            often: compare less, for slices: operators and what few call are left out.
        """
        outer, imports = self._inside, module not in sys.modules
        if outer:
            self._leave(*outer)
        if name:
            self._worlds.setdefault(name, self._worlds.get(f"{module}:", _World()).copy())
            self._enter(name, often)
        try:
            yield
        finally:
            if name:
                self._leave(name, often)
                if imports and module in sys.modules:
                    self._worlds[f"{module}:"] = self._worlds[name].copy()
            if outer:
                self._enter(*outer)

    def _enter(self, name: str, often: bool) -> None:
        if not self._settings:
            import_compiler()
            self._settings = _settings()
        self._learn()
        if not often:
            for key, (owner, _) in self._known.items():  # torch itself may have replaced some
                if self._changes(owner):
                    self._known[key] = owner, {**vars(owner)}
            self._operators = self._operators_now()
        world = self._worlds[name]
        self._before = {
            key: self._read(key)
            for key, one in self._settings.items()
            if not (often and one.seldom) or key in world.settings
        }
        for key, value in reversed(world.settings.items()):
            if value is not None and _changed(self._before[key], value):
                self._settings[key].put(value)
        for (_, name_in), (owner, value) in world.names.items():
            _assign(owner, name_in, value)
        self._inside = name, often

    def _leave(self, name: str, often: bool) -> None:
        """Undo what has changed, and keep it as the world of an implementation."""
        world, self._inside = self._worlds[name], None
        owners = [one for one, _ in world.names.values()]
        owners += _OFTEN if often else [one for one, _ in self._known.values()]
        world.names = {
            (id(owner), name_in): (owner, value)
            for owner in {id(one): one for one in owners}.values()
            for name_in, value in self._changes(owner)
        }
        lasting = []
        for (key, name_in), (owner, _) in world.names.items():
            with suppress(Exception):
                _assign(owner, name_in, self._known[key][1].get(name_in, _ABSENT))
        for key, name_in in [key for key in world.names if self._is_changed(*key)]:
            owner, _ = world.names.pop((key, name_in))
            lasting.append(f"{owner.__name__}.{name_in}")
        self._learn(world)
        world.settings = self._settings_back()
        for key in [key for key in world.settings if self._remains(key)]:
            del world.settings[key]
            lasting.append(key)
        if not often:
            before, (_, now) = self._operators[1], self._operators_now()
            found = (one for one, dump in before.items() if _overrides(dump, now.get(one, "")))
            lasting += [f"the operator {one}" for one in found]
        self.lasting += [] if self.apart else lasting

    def _settings_back(self) -> dict[str, Any]:
        """Put the settings back one by one, modes that see calls of torch first."""
        now = {key: self._read(key) for key in self._before}
        found = {key: now[key] for key, old in self._before.items() if _changed(old, now[key])}
        for _ in range(2 if found else 0):  # putting one back may change another one
            for key in filter(self._remains, self._before):
                with suppress(Exception):
                    self._settings[key].put(self._before[key])
        return found

    def _remains(self, key: str) -> bool:
        return _changed(self._before[key], self._read(key))

    def _read(self, key: str) -> Any:
        try:
            return self._settings[key].read()
        except Exception:  # the current folder has been deleted, say
            return None

    def _changes(self, owner: Any) -> list[tuple[str, Any]]:
        """The functions and classes of a module or class that differ; of a class, also new ones."""
        now, (_, known) = vars(owner), self._known[id(owner)]
        if len(now) == len(known) and all(map(is_, now.values(), known.values())):
            return []
        functions = {name: value for name, value in known.items() if _is_function(value)}
        found = [(n, now.get(n, _ABSENT)) for n, old in functions.items() if now.get(n) is not old]
        new = now.keys() - known.keys() if isinstance(owner, type) else ()
        added = {name: now[name] for name in new if _is_function(now[name])}
        # Other values may change: torch counts and remembers in them.
        kept = {name: value for name, value in now.items() if name not in added}
        self._known[id(owner)] = owner, {**kept, **functions}
        return [*found, *added.items()]

    def _is_changed(self, key: int, name: str) -> bool:
        owner, known = self._known[key]
        return vars(owner).get(name, _ABSENT) is not known.get(name, _ABSENT)

    def _learn(self, world: _World | None = None) -> None:
        """Look at the modules that have been imported since; those that a step has imported may
        have copied the names that it replaced."""
        if len(sys.modules) == self._seen:
            return
        self._seen = len(sys.modules)
        names = [*world.names.items()] if world else []
        replaced = {(name, id(value)): key for (key, name), (_, value) in names}
        for module in [*_OFTEN, *_modules()]:
            if id(module) in self._known:
                continue
            for name, value in [*vars(module).items()] if replaced else ():
                if key := replaced.get((name, id(value))):
                    world.names[id(module), name] = module, value
                    _assign(module, name, self._known[key][1].get(name, _ABSENT))
            self._known[id(module)] = module, {**vars(module)}
            for one in _classes(vars(module).values()):
                self._known.setdefault(id(one), (one, {**vars(one)}))

    def _operators_now(self) -> tuple[Any, dict[str, str]]:
        """What computes each operator of PyTorch, and what tells that this may have changed."""
        mark = len(torch.library._impls), len(torch.ops.loaded_libraries), len(sys.modules)
        if mark == self._operators[0]:
            return self._operators
        names = (one for one in torch._C._dispatch_get_all_op_names() if one.startswith("aten::"))
        return mark, {name: torch._C._dispatch_dump(name) for name in names}


def import_compiler() -> None:
    """Import torch's compiler, which replaces some functions of torch: nobody else has."""
    importlib.import_module("torch._inductor.config")
    importlib.import_module("torch._dynamo.eval_frame").TorchPatcher.patch()
    importlib.import_module("torch._dynamo.mutation_guard").install_generation_tagging_init()


def _modules() -> list[ModuleType]:
    found = [*sys.modules.items()]
    return [
        module
        for name, module in found
        if name.partition(".")[0] in _PACKAGES and isinstance(module, ModuleType)
    ]


def _classes(values: Iterable[Any]) -> list[type]:
    found = [one for one in values if issubclass(type(one), type)]
    return [one for one in found if str(one.__module__).partition(".")[0] in _PACKAGES]


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, property | classmethod | staticmethod)


def _assign(owner: Any, name: str, value: Any) -> None:
    if value is not _ABSENT:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


def _changed(before: Any, now: Any) -> bool:
    """Whether a setting has changed; one that was unknown has not."""
    try:
        return before is not None and before is not now and bool(before != now)
    except Exception:  # values of an implementation
        return True


def _overrides(before: str, now: str) -> bool:
    """Whether another kernel computes an operator, by what the dispatcher registered for it."""
    lines = {*now.splitlines()} ^ {*before.splitlines()}
    return any(not one.startswith(_DESCRIBING) and "fallthrough" not in one for one in lines)


def _settings() -> dict[str, _Setting]:
    """Name -> setting. The first one sees calls of torch, so it is put back first."""
    found = {"modes of torch": _Setting(_modes, _put_modes)}
    found |= _pairs() | _torch_settings() | _python_settings()
    for name in _CONFIGS:
        module = importlib.import_module(name)
        entries = getattr(module, "config", module)._config
        found[f"{name.removesuffix('._config')} options"] = _Setting(
            partial(_options, entries), partial(_put_options, entries), seldom=True
        )
    return found


def _options(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value of the options of torch's compiler that are not as by default."""
    found = ((key, one.user_override.get(), one.default) for key, one in entries.items())
    return {k: value for k, value, default in found if value is not _UNSET and value != default}


def _put_options(entries: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in _options(entries) | values:
        entries[name].user_override.set(values.get(name, _UNSET))


def _modes() -> tuple:
    functions = tuple(torch.overrides._get_current_function_mode_stack())
    dispatch = tuple(_python_dispatch._get_current_dispatch_mode_stack())
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    flags = (
        _python_dispatch._is_in_torch_dispatch_mode,
        _python_dispatch._is_in_non_infra_torch_dispatch_mode,
    )
    return functions, dispatch, context, _device.CURRENT_DEVICE, flags


def _put_modes(modes: tuple) -> None:
    functions, dispatch, context, device, flags = modes
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    while torch._C._len_torch_dispatch_stack():
        torch._C._pop_torch_dispatch_stack(None)
    for one in functions:
        torch._C._push_on_torch_function_stack(one)
    for one in dispatch:
        torch._C._push_on_torch_dispatch_stack(one)
    torch._GLOBAL_DEVICE_CONTEXT.device_context, _device.CURRENT_DEVICE = context, device
    (
        _python_dispatch._is_in_torch_dispatch_mode,
        _python_dispatch._is_in_non_infra_torch_dispatch_mode,
    ) = flags


def _pairs() -> dict[str, _Setting]:
    """The settings of `torch._C` with a getter and a setter, as one version of torch has them."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # some are deprecated
        for getter in dir(torch._C):
            start = next((one for one in _GETTERS if getter.startswith(one)), None)
            if start is None or getter in _NOT_PAIRS:
                continue
            name = getter.removeprefix(start)
            short = name.removesuffix("_enabled")
            setters = [_GETTERS[start] + one for one in (name, short)]
            setters.append(f"_set_sdp_use_{short.removesuffix('_sdp')}")
            setter = next((one for one in setters if hasattr(torch._C, one)), None)
            with suppress(Exception):
                read = getattr(torch._C, getter)
                if setter and read() is not None:
                    put = getattr(torch._C, setter)
                    found[name.removeprefix("num_").replace("_", " ")] = _Setting(
                        read, _spread(put)
                    )
    return found


def _spread(put: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda value: put(*value) if isinstance(value, tuple) else put(value)


def _torch_settings() -> dict[str, _Setting]:
    of_c, grad, cuda = torch._C, torch._C._autograd, torch.cuda
    found = {
        "gradients": _Setting(torch.is_grad_enabled, torch._C._set_grad_enabled),
        "inference mode": _Setting(torch.is_inference_mode_enabled),
        "default dtype": _Setting(torch.get_default_dtype, torch.set_default_dtype),
        "default tensor type": _Setting(of_c._get_default_device),
        "deterministic algorithms": _Setting(
            torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode
        ),
        "anomaly mode": _Setting(
            lambda: (of_c.is_anomaly_enabled(), of_c.is_anomaly_check_nan_enabled()),
            _spread(of_c.set_anomaly_enabled),
        ),
        "flushed denormals": _Setting(lambda: _SMALL[0] * 1.0 == 0.0, torch.set_flush_denormal),
        "hooks of saved tensors": _Setting(lambda: grad._top_saved_tensors_default_hooks(True)),
        "random state of torch": _Setting(
            lambda: of_c.default_generator.get_state().numpy().tobytes(),
            lambda value: of_c.default_generator.set_state(_tensor(value)),
        ),
        "random state of CUDA": _Setting(
            _if_cuda(lambda: [_bytes(one.get_state()) for one in cuda.default_generators]),
            lambda value: [
                one.set_state(_tensor(of))
                for one, of in zip(cuda.default_generators, value, strict=True)
            ],
        ),
        "CUDA device": _Setting(_if_cuda(cuda.current_device), cuda.set_device),
        "CUDA stream": _Setting(_if_cuda(cuda.current_stream), cuda.set_stream),
        "CUDA memory fraction": _Setting(
            _if_cuda(cuda.get_per_process_memory_fraction), cuda.set_per_process_memory_fraction
        ),
    }
    for device in ("cpu", "cuda"):
        found[f"autocast of {device}"] = _Setting(
            lambda of=device: (torch.is_autocast_enabled(of), torch.get_autocast_dtype(of)),
            lambda value, of=device: [
                put(of, one)
                for put, one in zip(
                    (torch.set_autocast_enabled, torch.set_autocast_dtype), value, strict=True
                )
            ],
        )
    of_backends = [
        ("generic", "all"),
        *product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn")),
    ]
    for backend, kind in of_backends:
        found[f"float32 precision of {backend} {kind}"] = _Setting(
            lambda of=(backend, kind): of_c._get_fp32_precision_getter(*of),
            lambda value, of=(backend, kind): of_c._set_fp32_precision_setter(*of, value),
        )
    for name, hooks in [
        pair for one in _HOOKS for pair in vars(importlib.import_module(one)).items()
    ]:
        if name.startswith("_global_") and isinstance(hooks, dict):
            found[name.strip("_").replace("_", " ")] = _Setting(
                lambda hooks=hooks: {**hooks},
                lambda value, hooks=hooks: (hooks.clear(), hooks.update(value)),
            )
    return found


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()


def _tensor(value: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)


def _if_cuda(read: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: read() if torch.cuda.is_initialized() else None


def _python_settings() -> dict[str, _Setting]:
    def put_environment(value: dict[bytes, bytes]) -> None:
        for name in os.environb.keys() - value.keys():
            del os.environb[name]
        os.environb.update(value)

    def put_filters(value: list) -> None:
        warnings.filters[:] = value
        warnings._filters_mutated()

    def numpy_random() -> Any:
        return getattr(sys.modules.get("numpy"), "random", None)

    def put_signals(value: tuple) -> None:
        for number, handler in zip(_SIGNALS, value, strict=True):
            signal.signal(number, handler)

    found = {
        "random state of Python": _Setting(random.getstate, random.setstate),
        "random state of NumPy": _Setting(
            lambda: pickle.dumps(one.get_state()) if (one := numpy_random()) else None,
            lambda value: numpy_random().set_state(pickle.loads(value)),
            seldom=True,
        ),
        "environment": _Setting(os.environb._data.copy, put_environment),
        "current folder": _Setting(os.getcwd, os.chdir),
        "sys.path": _Setting(
            lambda: [*sys.path], lambda value: sys.path.__setitem__(slice(None), value)
        ),
        "filters of warnings": _Setting(lambda: [*warnings.filters], put_filters),
        "signal handlers": _Setting(lambda: tuple(map(signal.getsignal, _SIGNALS)), put_signals),
        "garbage collection": _Setting(
            lambda: (gc.isenabled(), gc.get_threshold()),
            lambda value: ((gc.enable if value[0] else gc.disable)(), gc.set_threshold(*value[1])),
        ),
        "tracing": _Setting(
            lambda: (sys.gettrace(), sys.getprofile()),
            lambda value: (sys.settrace(value[0]), sys.setprofile(value[1])),
        ),
        "switch interval": _Setting(sys.getswitchinterval, sys.setswitchinterval),
        "recursion limit": _Setting(sys.getrecursionlimit, sys.setrecursionlimit),
        "priority": _Setting(lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    }
    if hasattr(os, "sched_getaffinity"):
        # Threads that have started since keep those of the thread that started them.
        found["processors"] = _Setting(lambda: os.sched_getaffinity(0))
    return found
