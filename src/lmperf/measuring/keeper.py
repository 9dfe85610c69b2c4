"""The program that a supervisor starts: a keeper, and below it the worker.

    supervisor -> keeper -> worker -> ranks, compilers, whatever an implementation starts

The keeper forks the worker before torch is imported, and adopts orphans (subreaper): a process that
made itself a daemon stays below it. It ends all of them when the worker ends, when it is told to
(SIGTERM), and when the supervisor dies, even by kill -9 (the kernel then sends it SIGTERM). If the
keeper itself is killed, the kernel kills the worker. The keeper holds the lock of the device.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from lmperf.errors import described, trace_of
from lmperf.measuring.processes import (
    adopt_orphans,
    can_be_interrupted,
    die_with,
    end,
    end_children,
)


def keep(supervisor: int, pipe: int, *held: int) -> None:
    """Fork: return in the worker, which has the pipe; the keeper has `held`, and never returns."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    die_with(supervisor, signal.SIGTERM)
    keeper, worker, code = os.getpid(), os.fork(), 1
    if worker == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        can_be_interrupted()
        die_with(keeper)
        for descriptor in held:
            os.close(descriptor)
        return
    os.close(pipe)
    with contextlib.suppress(BaseException):
        while (ended := os.wait())[0] != worker:
            pass
        code = os.waitstatus_to_exitcode(ended[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end(worker)  # children cannot be listed on every system
    end_children()
    os._exit(code if code >= 0 else 128 - code)


def main(supervisor: int, pipe: int, *held: int) -> None:
    """Fork, and run `worker.main(pipe)` in the worker."""
    keep(supervisor, pipe, *held)
    os.set_inheritable(pipe, False)
    worker = os.getpid()
    try:
        from lmperf.measuring.worker import main as work  # the keeper must not import torch

        work(pipe)
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)  # without waiting for threads
    except Exception as error:
        if os.getpid() != worker:
            raise  # a process that an implementation has forked
        words = described(error)
        failed = {"status": "crash", "reason": words}
        for message in ({"traceback": trace_of(error), "words": words}, {"failed": failed}):
            os.write(pipe, f"{json.dumps(message)}\n".encode())
        os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
