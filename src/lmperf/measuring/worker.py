"""The worker: the process that uses the device and measures on request.

It announces each step before it takes it, so that the supervisor knows what was running if it
crashes or hangs. Requests and replies are tuples that begin with a word; the last reply to a
request is `done` with the result, `wrong` (a result failed its check) or `failed` (an error, after
which this process must not be used again).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lmperf.measuring import follow

# Version of the requests and replies. A supervisor can only use workers with the same version.
PROTOCOL = 3


def main(connection: Connection, device: str, lock: Any, output: Any = None) -> None:
    """Answer requests until the supervisor closes the connection; runs in the worker's process.

    Args:
        lock: descriptor of the open file that holds the machine's lock.
        output: descriptor that replaces stdout and stderr.
    """
    os.setsid()
    _end_with_supervisor()
    if output is not None:
        _redirect_output(output)
    _keep_from_children(connection.fileno(), lock)
    # Before any implementation is imported, which could replace the functions that tell the time.
    from lmperf.measuring.serving import Serving

    code = str(Path(__file__).resolve().parents[1])
    connection.send(("done", {**_device_facts(device), "code": code}))
    serving = Serving(connection, device)
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
    """Have child processes of this worker inherit neither the lock nor the connection."""

    def replace() -> None:  # closing would let another file take the number
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
    return facts
