"""Calls of the CUDA driver through ctypes, for `launch.py`."""

import ctypes
from collections.abc import Callable
from functools import cache

# CUDA_ERROR_INVALID_CONTEXT: the calling thread has no current context.
NO_CONTEXT = 201


@cache
def launcher() -> Callable[..., int]:
    """cuLaunchKernel: (function, grid, block, shared bytes, stream, parameters, None) -> status."""
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    address, number = ctypes.c_void_p, ctypes.c_uint
    launch.argtypes = (address, *7 * (number,), *3 * (address,))
    return launch


def current_context() -> ctypes.c_void_p:
    """The context of the calling thread."""
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context


def use_context(context: ctypes.c_void_p) -> None:
    """Make a context that of the calling thread."""
    ctypes.CDLL("libcuda.so.1").cuCtxSetCurrent(context)
