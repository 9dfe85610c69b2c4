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
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from operator import is_
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils._config_module import _UNSET_SENTINEL as _UNSET

# Packages whose functions and classes run in calls of several implementations.
_PACKAGES = {"torch", "triton", "flash_attn", "torchao"}
# Modules and classes that are compared even after a slice of calls.
_OFTEN: tuple[Any, ...] = (
    *(torch, torch.nn.functional, torch.Tensor, torch.nn.Module, torch.autograd.Function),
    *(torch.optim.Optimizer, torch.autograd, torch.cuda, builtins, math, time, random),
)
# Settings with `_get_NAME` and `_set_NAME` in torch._C, and backends of SDPA; not every version of
# torch has all.
_OF_TORCH = (
    *("float32_matmul_precision", "cublas_allow_fp16_accumulation", "warnAlways"),
    *("cublas_allow_fp16_reduced_precision_reduction", "math_sdp_allow_fp16_bf16_reduction"),
    *("cublas_allow_bf16_reduced_precision_reduction", "cudnn_allow_tf32", "cudnn_benchmark"),
    *("cpu_allow_fp16_reduced_precision_reduction", "cudnn_deterministic", "cudnn_enabled"),
    *("deterministic_fill_uninitialized_memory", "mkldnn_deterministic", "mkldnn_enabled"),
    *("blas_preferred_backend", "linalg_preferred_backend", "sdp_priority_order"),
)
_SDPA = ("flash", "math", "mem_efficient", "cudnn", "overrideable", "fa3")
_CONFIGS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental._config")
_HOOKS = ("torch.nn.modules.module", "torch.optim.optimizer")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD)
_SMALL = [5e-324]  # a denormal, where Python does not fold a product with it
_ABSENT = object()
# Name of the setting that says which CUDA device is the current one.
DEVICE = "CUDA device"


class _Setting(NamedTuple):
    """A setting of the process: what reads its value, and what sets one, unless nothing can.

    A value of None is unknown.
    """

    read: Callable[[], Any]
    put: Callable[[Any], Any] = lambda _: None


@dataclass
class _World:
    """What an implementation has changed.

    Attributes:
        settings: name -> value.
        names: a module or class, a name in it, and the value.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    names: list[tuple[Any, str, Any]] = field(default_factory=list)


class Worlds:
    """The worlds of the implementations that are not the project's own.

    Args:
        apart: whether this process measures one implementation alone, which may change what cannot
            be put back.
        ignores: whether what cannot be put back is ignored, as in a comparison of versions.

    Attributes:
        lasting: what has been changed and cannot be put back, in words; empty if ignored.
    """

    def __init__(self, apart: bool = False, ignores: bool = False) -> None:
        self.apart, self.lasting, self._ignores = apart, [], apart or ignores
        self._worlds: dict[str, _World] = {}
        self._inside: tuple[str, bool] | None = None
        self._settings: dict[str, _Setting] = {}
        self._before: dict[str, Any] = {}
        # Id of a module or class -> itself and its names, as nobody has changed them.
        self._known: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._seen = 0

    @contextmanager
    def of(self, name: str | None, module: str = "", often: bool = False) -> Iterator[None]:
        """A context for a step of an implementation; with None, for the project's code in one.

        Args:
            name: of the implementation.
            module: where it is. What a step changes that imports the module holds for all
                implementations there.
            often: compare less, for slices: what few call is left out.
        """
        outer, imports = self._inside, module not in sys.modules
        if outer:
            self._leave(*outer)
        if name:
            self._worlds.setdefault(name, self._worlds.get(f"{module}:", _World()))
            self._enter(name, often)
        try:
            yield
        finally:
            if name:
                self._leave(name, often)
                if imports and module in sys.modules:
                    self._worlds[f"{module}:"] = self._worlds[name]
            if outer:
                self._enter(*outer)

    def has_changed(self, name: str, setting: str) -> bool:
        """Whether an implementation has changed a setting, as found when its last step ended."""
        return name in self._worlds and setting in self._worlds[name].settings

    def _enter(self, name: str, often: bool) -> None:
        if not self._settings:
            import_compiler()
            self._settings = _settings()
        self._learn()
        for key, (owner, _) in () if often else self._known.items():
            if self._changes(owner):  # by torch itself
                self._known[key] = owner, {**vars(owner)}
        world, self._before = self._worlds[name], {key: self._read(key) for key in self._settings}
        for key, value in reversed(world.settings.items()):
            if value is not None and _changed(self._before[key], value):
                with suppress(Exception):  # a folder that has been deleted since, say
                    self._settings[key].put(value)
        for owner, name_in, value in world.names:
            _assign(owner, name_in, value)
        self._inside = name, often

    def _leave(self, name: str, often: bool) -> None:
        """Undo what has changed, and keep it as the world of an implementation."""
        self._inside = None
        owners = [owner for owner, _, _ in self._worlds[name].names]
        owners += _OFTEN if often else [owner for owner, _ in self._known.values()]
        changed = [
            (owner, name_in, value)
            for owner in {id(owner): owner for owner in owners}.values()
            for name_in, value in self._changes(owner)
        ]
        names, lasting = [], []
        for owner, name_in, value in changed:
            if self._restored(owner, name_in):
                names.append((owner, name_in, value))
            else:
                lasting.append(f"{owner.__name__}.{name_in}")
        self._learn()
        settings = self._settings_back()
        lasting += [key for key in settings if self._remains(key)]
        self._worlds[name] = _World({k: settings[k] for k in settings if k not in lasting}, names)
        self.lasting += [] if self._ignores else lasting

    def _settings_back(self) -> dict[str, Any]:
        """Put the settings back one by one, and return the values that had changed."""
        now = {key: self._read(key) for key in self._before}
        changed = {key: now[key] for key, old in self._before.items() if _changed(old, now[key])}
        for _ in range(2 if changed else 0):  # putting one back may change another one
            for key in filter(self._remains, self._before):
                with suppress(Exception):
                    self._settings[key].put(self._before[key])
        return changed

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
        differing = [
            (n, now.get(n, _ABSENT)) for n, old in functions.items() if now.get(n) is not old
        ]
        new = now.keys() - known.keys() if isinstance(owner, type) else ()
        added = {name: now[name] for name in new if _is_function(now[name])}
        # Other values may change: torch counts and remembers in them.
        kept = {name: value for name, value in now.items() if name not in added}
        self._known[id(owner)] = owner, {**kept, **functions}
        return [*differing, *added.items()]

    def _restored(self, owner: Any, name: str) -> bool:
        """Give a name its value as nobody has changed it; whether that succeeds."""
        value = self._known[id(owner)][1].get(name, _ABSENT)
        with suppress(Exception):
            _assign(owner, name, value)
        return vars(owner).get(name, _ABSENT) is value

    def _learn(self) -> None:
        """Look at the modules that have been imported since."""
        if len(sys.modules) == self._seen:
            return
        self._seen = len(sys.modules)
        for module in [*_OFTEN, *_modules()]:
            if id(module) not in self._known:
                self._known[id(module)] = module, {**vars(module)}
                for owner in _classes(vars(module).values()):
                    self._known.setdefault(id(owner), (owner, {**vars(owner)}))


def import_compiler() -> None:
    """Import torch's compiler, which replaces some functions of torch and keeps tables of others:
    nobody has changed them yet."""
    importlib.import_module("torch._inductor.config")
    importlib.import_module("torch._dynamo.eval_frame").TorchPatcher.patch()
    importlib.import_module("torch._dynamo.mutation_guard").install_generation_tagging_init()


def _modules() -> list[ModuleType]:
    modules = [*sys.modules.items()]
    return [
        module
        for name, module in modules
        if name.partition(".")[0] in _PACKAGES and isinstance(module, ModuleType)
    ]


def _classes(values: Iterable[Any]) -> list[type]:
    classes = [value for value in values if issubclass(type(value), type)]
    return [value for value in classes if str(value.__module__).partition(".")[0] in _PACKAGES]


def _is_function(value: Any) -> bool:
    # By its type: an attribute of torch's deprecated names, as isinstance reads, makes it warn.
    return callable(value) or issubclass(type(value), property | classmethod | staticmethod)


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


def _settings() -> dict[str, _Setting]:
    """Name -> setting. The first one sees calls of torch, so it is put back first."""
    settings = _torch_settings() | _python_settings()
    for name in _CONFIGS:
        module = importlib.import_module(name)
        entries = getattr(module, "config", module)._config
        settings[f"{name.removesuffix('._config')} options"] = _Setting(
            partial(_options, entries), partial(_put_options, entries)
        )
    return settings


def _options(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value of the options of torch's compiler that are not as by default."""
    options = ((key, _override(entry), entry.default) for key, entry in entries.items())
    return {k: value for k, value, default in options if value is not _UNSET and value != default}


def _put_options(entries: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in _options(entries) | values:
        value = values.get(name, _UNSET)
        if isinstance(entries[name].user_override, ContextVar):
            entries[name].user_override.set(value)
        else:
            entries[name].user_override = value


def _override(entry: Any) -> Any:
    """The value that somebody has given an option: a ContextVar holds it in newer versions."""
    value = entry.user_override
    return value.get() if isinstance(value, ContextVar) else value


def _autocast_depth() -> int:
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return depth - 1


def _set_autocast_depth(depth: int) -> None:
    torch.clear_autocast_cache()
    while (now := _autocast_depth()) != depth:
        change = (
            torch.autocast_increment_nesting if now < depth else torch.autocast_decrement_nesting
        )
        change()


def _default_device() -> torch.device | str:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context.device if context else ""


def _overridden() -> set[str]:
    """The operators of PyTorch that Python code computes."""
    names = (name for name in torch.library._impls if name.startswith("aten/"))
    return {name for name in names if not name.endswith("/Meta")}


def _torch_settings() -> dict[str, _Setting]:
    of_c, grad, cuda = torch._C, torch._C._autograd, torch.cuda
    settings = {
        "default device": _Setting(
            _default_device, lambda value: torch.set_default_device(value or None)
        ),
        "modes of torch": _Setting(
            lambda: (of_c._len_torch_function_stack(), of_c._len_torch_dispatch_stack())
        ),
        "operators of PyTorch": _Setting(_overridden),
        "threads": _Setting(torch.get_num_threads, torch.set_num_threads),
        "inter-op threads": _Setting(torch.get_num_interop_threads, torch.set_num_interop_threads),
        "gradients": _Setting(torch.is_grad_enabled, of_c._set_grad_enabled),
        "inference mode": _Setting(torch.is_inference_mode_enabled),
        "threads of gradients": _Setting(
            of_c._is_multithreading_enabled, of_c._set_multithreading_enabled
        ),
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
        "hooks of saved tensors": _Setting(lambda: [grad._top_saved_tensors_default_hooks(True)]),
        "random state of torch": _Setting(
            lambda: _bytes(of_c.default_generator.get_state()),
            lambda value: of_c.default_generator.set_state(_tensor(value)),
        ),
        "random state of CUDA": _Setting(
            _if_cuda(
                lambda: [_bytes(generator.get_state()) for generator in cuda.default_generators]
            ),
            lambda value: [
                generator.set_state(_tensor(state))
                for generator, state in zip(cuda.default_generators, value, strict=True)
            ],
        ),
        DEVICE: _Setting(_if_cuda(cuda.current_device), cuda.set_device),
        "CUDA stream": _Setting(_if_cuda(cuda.current_stream), cuda.set_stream),
        "CUDA memory fraction": _Setting(
            _if_cuda(cuda.get_per_process_memory_fraction), cuda.set_per_process_memory_fraction
        ),
        "cache of autocast": _Setting(
            of_c.is_autocast_cache_enabled, of_c.set_autocast_cache_enabled
        ),
        # Inside an autocast that nobody leaves, casts of weights would be kept for good.
        "depth of autocast": _Setting(_autocast_depth, _set_autocast_depth),
    }
    for device, kind in product(("cpu", "cuda"), ("enabled", "dtype")):
        read = torch.is_autocast_enabled if kind == "enabled" else torch.get_autocast_dtype
        put = getattr(torch, f"set_autocast_{kind}")
        settings[f"autocast of {device}, {kind}"] = _Setting(
            partial(read, device), partial(put, device)
        )
    of_backends = ("generic", "all"), *product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn"))
    for names in of_backends:
        settings[f"float32 precision of {' '.join(names)}"] = _Setting(
            partial(of_c._get_fp32_precision_getter, *names),
            partial(of_c._set_fp32_precision_setter, *names),
        )
    pairs = [(f"_get_{name}", f"_set_{name}") for name in _OF_TORCH]
    pairs += [(f"_get_{backend}_sdp_enabled", f"_set_sdp_use_{backend}") for backend in _SDPA]
    for getter, setter in pairs:
        if hasattr(of_c, getter):
            name = getter.removeprefix("_get_").replace("_", " ")
            settings[name] = _Setting(getattr(of_c, getter), _spread(getattr(of_c, setter)))
    for module in _HOOKS:
        for name, hooks in vars(importlib.import_module(module)).items():
            if name.startswith("_global_") and isinstance(hooks, dict):
                settings[name.strip("_").replace("_", " ")] = _Setting(
                    hooks.copy, partial(_put, hooks)
                )
    return settings


def _spread(put: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda value: put(*value) if isinstance(value, tuple) else put(value)


def _put(into: dict, values: Mapping) -> None:
    into.clear()
    into.update(values)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()


def _tensor(value: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(value), dtype=torch.uint8)


def _if_cuda(read: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: read() if torch.cuda.is_initialized() else None


def _python_settings() -> dict[str, _Setting]:
    def numpy_state() -> Any:
        kind, keys, *more = numpy_random().get_state()
        return kind, keys.tobytes(), *more

    def put_numpy_state(value: tuple) -> None:
        kind, keys, *more = value
        numpy_random().set_state((kind, memoryview(keys).cast("I"), *more))

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

    settings = {
        "random state of Python": _Setting(random.getstate, random.setstate),
        "random state of NumPy": _Setting(numpy_state, put_numpy_state),
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
        "priority": _Setting(lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    }
    if hasattr(os, "sched_getaffinity"):
        # Threads that have started since keep those of the thread that started them.
        settings["processors"] = _Setting(lambda: os.sched_getaffinity(0))
    return settings
