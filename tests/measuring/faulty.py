"""Attention implementations with one fault each."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl

from lmperf.attention.reference import attention


def is_right(q, k, v, causal=False):
    """An implementation without a fault."""
    return attention(q, k, v, causal)


def ends(q, k, v, causal=False):
    os._exit(3)


def segfaults(q, k, v, causal=False):
    os.kill(os.getpid(), signal.SIGSEGV)


def reads_what_is_not_its_own(q, k, v, causal=False):
    return ctypes.string_at(8)


def hangs(q, k, v, causal=False):
    held = multiprocessing.Semaphore()  # as a compiler's processes hold
    time.sleep(600)
    held.release()


def hangs_with_a_grandchild(q, k, v, causal=False):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("started", child.pid)
    time.sleep(600)


def forks_a_daemon(q, k, v, causal=False):
    _fork_a_daemon(os.fork)
    return attention(q, k, v, causal)


def ends_and_leaves_a_daemon(q, k, v, causal=False):
    """Forks without os.fork, so that the daemon inherits every open file."""
    _fork_a_daemon(ctypes.PyDLL(None).fork)
    os._exit(3)


def _fork_a_daemon(fork):
    child = fork()
    if child == 0:
        os.setsid()
        if (daemon := fork()) == 0:
            time.sleep(600)
        print("started", daemon)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


def writes_a_megabyte(q, k, v, causal=False):
    print("line\n" * 2**18)
    return attention(q, k, v, causal)


def writes_binary(q, k, v, causal=False):
    os.write(1, bytes(range(256)) * 2**12)
    return attention(q, k, v, causal)


def says_why_and_ends(q, k, v, causal=False):
    print("no kernel image for this device", file=sys.stderr)
    os._exit(7)


def raises_what_cannot_be_encoded(q, k, v, causal=False):
    raise RuntimeError("für \ud800 \0 \x1b[31m \u202e")


def closes_its_files(q, k, v, causal=False):
    os.closerange(3, 256)
    time.sleep(600)


def asks_for_a_pebibyte(q, k, v, causal=False):
    return torch.empty(2**50, dtype=torch.uint8)


def asks_for_more_than_is_free(q, k, v, causal=False):
    free, _ = torch.cuda.mem_get_info()
    kept = torch.empty(int(0.9 * free), dtype=torch.uint8, device=q.device)
    return torch.empty_like(kept)


def fills_the_memory(q, k, v, causal=False):
    """Allocates 64 MiB at a time until the device is full."""
    _KEPT.append([])
    while True:
        _KEPT[-1].append(torch.empty(2**26, dtype=torch.uint8, device=q.device))


_KEPT: list = []


def writes_where_nothing_is(q, k, v, causal=False):
    """Makes an illegal memory access on a GPU, after which its context cannot be used."""
    out = attention(q, k, v, causal)
    _write_at[(1,)](out.detach(), 2**50)
    return out


@triton.jit
def _write_at(pointer, distance):
    tl.store(pointer + distance, 1.0)


def is_not_finite(q, k, v, causal=False):
    return attention(q, k, v, causal) * float("nan")


def drops_the_last_key(q, k, v, causal=False):
    return attention(q, k[..., :-1, :], v[..., :-1, :], causal)


def fails_in_backward(q, k, v, causal=False):
    out = attention(q, k, v, causal)
    out.register_hook(lambda grad: torch.empty(2**50, dtype=torch.uint8))
    return out


def fits_once(q, k, v, causal=False):
    """Runs out of memory in every call but the first of its process, so in its check."""
    _CALLS.append(1)
    if len(_CALLS) > 1:
        torch.empty(2**50, dtype=torch.uint8)
    return attention(q, k, v, causal)


_CALLS: list = []


def raises(q, k, v, causal=False):
    raise RuntimeError("no kernel for this")
