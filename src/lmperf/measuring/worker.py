"""Runs in a worker: a process that uses the device and measures on request of the supervisor.

The worker sends a message before each step, so that the supervisor knows which case was running if
the worker crashes or hangs. Requests and replies are tuples that begin with a word. The last reply
to a request is `done` with the result, `wrong` (a result failed its check) or `failed` (an error
after which this process must not be used again).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lmperf.measuring import follow

# Version of the requests and replies. Supervisor and worker must have the same version.
PROTOCOL = 4


def main(
    connection: Connection, device: str, lock: Any, output: Any = None, more_locks: Sequence = ()
) -> None:
    """Answer requests until the supervisor closes the connection; runs in the worker's process.

    Args:
        connection: the worker's end of the pipe to the supervisor.
        device: cuda, mps or cpu.
        lock: descriptor of the open file that holds the lock of the machine or of a GPU.
        output: descriptor that replaces stdout and stderr; None: they stay as they are.
        more_locks: descriptors of the locks of further GPUs.
    """
    os.setsid()
    _end_with_supervisor()
    if output is not None:
        _redirect_output(output)
    _keep_from_children(connection.fileno(), lock, *more_locks)
    # Import the clocks before any implementation, which could replace the functions of `time`.
    from lmperf.measuring.footprint import import_dispatch
    from lmperf.measuring.rank_server import RankServer
    from lmperf.measuring.serving import Serving

    if device == "cpu":
        import_dispatch()  # no step of a case is to wait for it
    server = RankServer()  # before this process uses the device
    _keep_from_children(server.fileno())
    code = str(Path(__file__).resolve().parents[1])
    connection.send(("done", {**_device_facts(device), "code": code}))
    serving = Serving(connection, device, server)
    while True:
        try:
            name, *arguments = connection.recv()
        except (EOFError, OSError):
            return
        serving.answer(name, arguments)


def _end_with_supervisor() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the server ignores it
    follow.die_with(os.getppid())
    follow.adopt_orphans()
    supervisor = multiprocessing.parent_process()
    if supervisor is not None and not supervisor.is_alive():
        os._exit(1)


def _redirect_output(output: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if sys.stdout is not None:  # keeps lines printed before a crash
        sys.stdout.reconfigure(line_buffering=True)


def _keep_from_children(*descriptors: int) -> None:
    """Keep child processes of this worker from inheriting the lock and the connection."""

    def replace() -> None:  # a closed descriptor's number could be reused
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=replace)


def _device_facts(device: str) -> dict[str, Any]:
    import torch

    facts: dict[str, Any] = {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
    }
    if device == "cpu":
        facts["threads"] = torch.get_num_threads()
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        facts["multiprocessors"] = properties.multi_processor_count
        facts["cudnn"] = torch.backends.cudnn.version()
        facts["uuid"] = f"GPU-{properties.uuid}"
        if (count := torch.cuda.device_count()) > 1:
            every = map(torch.cuda.get_device_properties, range(count))
            facts["uuids"] = [f"GPU-{one.uuid}" for one in every]
    return facts
