"""What a user's function or class must accept, and why one cannot be used, from its signature.

Nothing is called, and classes of torch are recognised by name: torch is imported only if the
user's module imports it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Mapping
from functools import partial, partialmethod
from types import MappingProxyType
from typing import Any

# Kind of custom implementation that a benchmark takes -> its description for messages.
TAKES = {
    "attention": "a function of (q, k, v, causal=...), or an autograd.Function class",
    "lrpe": "a function of (x, theta, shape, extra_tokens)",
    "model": (
        "a model class, a function that takes a model and gives back what is called, a train step"
        " (model, optimizer, tokens, targets), or an optimizer class"
    ),
    "strategy": (
        "a class or function of (module), of (module, compute_dtype=...) with a method"
        " gather_full_params(), or of (params, optimizer_cls, **options)"
    ),
}
# The arguments that the constructor of a model class may have.
MODEL_ARGUMENTS = (
    *("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff", "rope_theta"),
)
# Names that some models have for one of these.
MODEL_ALIASES = {"theta": "rope_theta", "max_seq_len": "context_length"}
# The arguments with which a custom optimizer is made, and a custom sharded one.
OPTIMIZER_ARGUMENTS = ("lr", "betas", "eps", "weight_decay")
OPTIMIZER_OPTIONS = ("lr", "eps", "fused", "capturable")
# The arguments of a train step in their order, and the names that users give them; empty: any.
_STEP = {"model": "model", "optimizer": "^opt(im|$)", "tokens": "", "targets": "target|label"}
# Kind of strategy -> the arguments with which it is called.
_STRATEGIES = {
    "ddp": "(module)",
    "fsdp": "(module, compute_dtype)",
    "sharded_optimizer": "(params, optimizer_cls, **options)",
}
_FUNCTION = "torch.autograd.function.Function"
_MODULE = "torch.nn.modules.module.Module"
_OPTIMIZER = "torch.optim.optimizer.Optimizer"
# What a benchmark takes -> the base classes, of which a custom class has one.
_BASES = {
    "attention": {_FUNCTION},
    "model": {_MODULE, _OPTIMIZER},
    "strategy": {_MODULE, _OPTIMIZER},
}
# What lmperf calls of a wrapper -> the end of the function's name in the course's adapters.
HOOKS = {
    "start": "on_train_batch_start",
    "finish_gradient_synchronization": "on_after_backward",
    "gather_full_params": "gather_full_params",
}
# Method of a wrapper that lmperf calls -> names of methods that may have been meant for it.
_SIMILAR = {
    "finish_gradient_synchronization": r"^(?!no_).*(sync|grad|reduce|finish|after_backward)",
    "gather_full_params": r"gather|full|unshard|state_dict",
}


def fault_of(
    given: Any, takes: str, kind: str = "", options: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Return why an object cannot be used as what a benchmark takes, and what to write; "" if none.

    takes: a key of `TAKES`. kind: the kind of strategy that is meant, as of `kind_of`, or
        `optimizer` among models; empty: any.
    options: keyword arguments with which it is called, see `bound`.
    """
    if options:
        return _options_fault(given, options) or fault_of(bound(given, options), takes, kind)
    if isinstance(given, type) and not _has_base(given, _BASES.get(takes, set())):
        # A wrapper needs no base class, if it is called as a module is.
        is_called = any("__call__" in vars(base) for base in given.__mro__)
        if takes != "strategy" or not is_called:
            return f"that is a class; it must be {TAKES[takes]}"
    # A `transformer.steps.StepMaker` holds the way to run a model; importing it imports torch.
    if not callable(given) and not callable(getattr(given, "way", None)):
        return f"that is not a function; it must be {TAKES[takes]}"
    match takes:
        case "attention":
            return _attention_fault(given)
        case "lrpe":
            return _call_fault(given, "(x, theta, shape, extra_tokens)", 4)
        case "model":
            return _model_fault(given, kind)
        case "strategy":
            return _strategy_fault(given, kind or kind_of(given))
    return ""


def bound(given: Any, options: Mapping[str, Any]) -> Any:
    """Return a function, or a class, with some of its keyword arguments given."""
    if not options:
        return given
    if isinstance(given, type) and not autograd_function(given):
        own = {"__init__": partialmethod(given.__init__, **options), "__module__": given.__module__}
        return type(given)(given.__name__, (given,), own)
    return partial(given, **options)


def _options_fault(given: Any, options: Mapping[str, Any]) -> str:
    if autograd_function(given):
        return "an autograd.Function takes no keyword arguments; write a function that calls it"
    signature = _signature_of(given)
    if signature is None or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return ""
    names = _named(signature)
    unknown = [name for name in options if name not in names]
    return f"it takes no argument {unknown[0]}; it takes {', '.join(names)}" if unknown else ""


def autograd_function(given: Any) -> type | None:
    """Return the `autograd.Function` class that is given, itself or by its method `apply`."""
    owner = given.__self__ if getattr(given, "__name__", "") == "apply" else given
    return owner if isinstance(owner, type) and _has_base(owner, {_FUNCTION}) else None


def causal_flag(given: Any) -> str:
    """Return the name of an attention's argument that switches the mask on; "" if it has none."""
    signature = _signature_of(given)
    if signature is None:
        return "causal"
    named = (name for name in _named(signature) if "causal" in name.lower())
    takes_any = len(_named(signature)) < len(signature.parameters)
    return next(named, "causal" if takes_any else "")


def is_step(implementation: Any) -> bool:
    """Whether a custom implementation is a train step, recognised by four required parameters.

    A train step is a function of (model, optimizer, tokens, targets).
    """
    signature = None if isinstance(implementation, type) else _signature_of(implementation)
    if signature is None:
        return False
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    needed = [p for p in signature.parameters.values() if p.default is p.empty]
    return len([p for p in needed if p.kind in kinds]) == 4


def is_model(implementation: Any) -> bool:
    """Whether a custom implementation is a model class, not a function that runs a given model."""
    return isinstance(implementation, type) and _has_base(implementation, {_MODULE})


def is_optimizer(implementation: Any) -> bool:
    """Whether a custom implementation is an optimizer class."""
    return isinstance(implementation, type) and _has_base(implementation, {_OPTIMIZER})


def kind_of(function: Callable) -> str:
    """What a user's class or function is: `ddp`, `fsdp` or `sharded_optimizer`.

    The last takes (parameters, optimizer_cls, **options); of those that take a module, `fsdp` has
    an argument `compute_dtype`, as in the course's adapters.
    """
    signature = _signature_of(function)
    names = _named(signature) if signature else []
    if "optimizer_cls" in names or is_optimizer(function):
        return "sharded_optimizer"
    return "fsdp" if "compute_dtype" in names else "ddp"


def hooks_of(function: Callable) -> dict[str, Callable]:
    """What lmperf calls of a wrapper -> the function for it beside this one in the adapters.

    Beside `get_ddp(module)` these are `ddp_on_train_batch_start(ddp_model, optimizer)`,
    `ddp_on_after_backward(ddp_model, optimizer)` and, of a fully sharded wrapper,
    `ddp_gather_full_params(ddp_model)`; likewise for other names. They come before methods.
    """
    function = getattr(function, "func", function)  # of a partial
    if not inspect.isfunction(function) or not function.__name__.startswith("get_"):
        return {}
    strategy = function.__name__.removeprefix("get_")
    hooks = {method: function.__globals__.get(f"{strategy}_{end}") for method, end in HOOKS.items()}
    return {method: hook for method, hook in hooks.items() if callable(hook)}


def is_called_with_nothing(function: Any) -> bool:
    """Whether a function has no arguments."""
    signature = _signature_of(function)
    return signature is not None and not signature.parameters


def missing_method(wrapper: type, method: str) -> str:
    """Return that a class lacks a method, and which of its methods may be meant; "" if it has it.

    A wrapper may do without `finish_gradient_synchronization`, unless it has one by another name.
    """
    if hasattr(wrapper, method):
        return ""
    own = (base for base in wrapper.__mro__ if not base.__module__.startswith(("torch", "builtin")))
    methods = [
        name for base in own for name, member in vars(base).items() if _takes_nothing(member)
    ]
    meant = [n for n in methods if not n.startswith("_") and re.search(_SIMILAR[method], n)]
    if meant:
        return f"{wrapper.__name__} has no {method}; it has {', '.join(meant)}: rename that"
    is_needed = method == "gather_full_params"
    return f"{wrapper.__name__} has no method {method}(); write one" if is_needed else ""


def _takes_nothing(method: Any) -> bool:
    """Whether an attribute of a class is a method that is called without arguments."""
    return inspect.isfunction(method) and not _unbound(inspect.signature(method), 1)


def _attention_fault(given: Any) -> str:
    call, signature = "(q, k, v, causal)", _signature_of(given)
    write = f"write a function of {call} that calls it"
    if signature is None:
        return ""
    names = _named(signature)
    letters = [name[0].lower() for name in names[:3]]
    if letters != ["q", "k", "v"] and sorted(letters) == ["k", "q", "v"]:
        return f"it takes {', '.join(names[:3])} in this order; {write}"
    flag = causal_flag(given)
    if not flag:
        return f"it has no argument causal or is_causal; {write}"
    if not autograd_function(given):
        return _call_fault(given, call, 3, {flag})
    if flag in names and names.index(flag) != 3:
        return f"{flag} is not the fourth argument of apply; {write}"
    return _call_fault(given, call, 4)


def _model_fault(given: Any, kind: str) -> str:
    if is_optimizer(given):
        if kind not in ("", "optimizer"):
            return "that is an optimizer class; try --as optimizer"
        call = f"(params, {', '.join(f'{name}=...' for name in OPTIMIZER_ARGUMENTS)})"
        return _call_fault(given, call, 1, OPTIMIZER_ARGUMENTS)
    if kind == "optimizer":
        return "it must be a class that is derived from torch.optim.Optimizer"
    if isinstance(given, type):
        return _constructor_fault(given) or _forward_fault(given)
    if _has_base(type(given), {_MODULE}):
        return f"that is a model; name its class, {type(given).__name__}"
    if hasattr(given, "way"):
        return ""
    if is_step(given):
        return _order_fault(given)
    return _call_fault(given, "(model)", 1, write=f"it must be {TAKES['model']}")


def _order_fault(step: Any) -> str:
    """That a train step takes its arguments in another order than it is called with."""
    names = _named(_signature_of(step))[:4]
    for place, pattern in enumerate(_STEP.values()):
        is_meant = [bool(pattern and re.search(pattern, name.lower())) for name in names]
        if any(is_meant) and not is_meant[place]:
            call = f"({', '.join(_STEP)})"
            return f"it takes ({', '.join(names)}); write a function of {call} that calls it"
    return ""


def _constructor_fault(model_class: type) -> str:
    signature = _signature_of(model_class)
    if signature is None:
        return ""
    parameters = signature.parameters.values()
    given = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in given if p.default is p.empty]
    needed = [name for name in needed if name not in (*MODEL_ARGUMENTS, *MODEL_ALIASES)]
    if not needed:
        return ""
    return (
        f"the constructor of {model_class.__name__} requires {', '.join(needed)}; it may take"
        f" {', '.join(MODEL_ARGUMENTS)}; write a subclass that takes these"
    )


def _forward_fault(model_class: type) -> str:
    fault = _unbound(inspect.signature(model_class.forward), 2)
    words = "cannot be called as (tokens)"
    return f"its forward {words}: {fault}; write a subclass whose forward can" if fault else ""


def _strategy_fault(given: Any, kind: str) -> str:
    call, own = _STRATEGIES[kind], kind_of(given)
    if own != kind:
        write = f"write a function of {call} that calls it"
        return f"by its arguments it is what --as {own} tries; try that, or {write}"
    if kind == "sharded_optimizer":
        if next(iter(_named(_signature_of(given))), "") == "optimizer_cls":
            return f"it takes optimizer_cls first; write a function of {call} that calls it"
        return _call_fault(given, call, 2, OPTIMIZER_OPTIONS)
    fault = _call_fault(given, call, 1, {"compute_dtype"} if kind == "fsdp" else ())
    if fault or not isinstance(given, type):
        return fault
    return wrapper_fault(given, kind)


def wrapper_fault(wrapper: type, kind: str, hooks: Container[str] = ()) -> str:
    """Return which method the class of a wrapper lacks; "" if it has what its kind needs.

    hooks: the methods for which `hooks_of` has a function.
    """
    methods = ["finish_gradient_synchronization"]
    methods += ["gather_full_params"] if kind == "fsdp" else []
    methods = [method for method in methods if method not in hooks]
    return next(filter(None, (missing_method(wrapper, method) for method in methods)), "")


def _call_fault(given: Any, call: str, count: int, names: Any = (), write: str = "") -> str:
    """Why an object cannot be called with so many positional arguments and those of these names."""
    signature = _signature_of(given)
    fault = _unbound(signature, count, names) if signature else ""
    write = write or f"write a function of {call} that calls it"
    if lacking := re.fullmatch(r"missing a required .*argument: '(\w+)'", fault):
        write += f", or give a value: --option {lacking[1]}=VALUE, or a key of the configuration"
    return f"it cannot be called as {call}: {fault}; {write}" if fault else ""


def _unbound(signature: inspect.Signature, count: int, names: Any = ()) -> str:
    try:
        signature.bind(*[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def _signature_of(given: Any) -> inspect.Signature | None:
    """The signature as which an object is called; None if it has none, as some C functions.

    Of an `autograd.Function` it is that of `apply`, of a module that of `forward`.
    """
    function = autograd_function(given)
    if function is None and not isinstance(given, type) and _has_base(type(given), {_MODULE}):
        function = given
    try:
        signature = inspect.signature(function.forward if function is not None else given)
    except (TypeError, ValueError):
        return None
    if isinstance(function, type) and function.setup_context.__module__.startswith("torch."):
        ctx, *parameters = signature.parameters.values()
        if ctx.kind is not ctx.VAR_POSITIONAL:
            signature = signature.replace(parameters=parameters)
    return signature


def _named(signature: inspect.Signature) -> list[str]:
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _has_base(given: type, names: set[str]) -> bool:
    """Whether a class or one of its bases has one of these qualified names."""
    bases = {f"{base.__module__}.{base.__qualname__}" for base in given.__mro__}
    return not bases.isdisjoint(names)
