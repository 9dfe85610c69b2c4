"""The worker: a process that touches the device, measures on request, and may be lost.

It says each step before it takes it, so that the supervisor knows what was running when it dies or
hangs. Requests and replies are tuples whose first word says what they are; every request ends with
`done`, `wrong` (a result that is not right) or `failed` (this process is not to be trusted again).
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

# Of what a worker is asked and answers: where it is another one, a conductor and a worker of two
# versions of the code do not understand each other.
PROTOCOL = 2


def main(connection: Connection, device: str, lock: Any, output: Any = None) -> None:
    """Serve requests until the supervisor closes the connection; runs in the worker's process.

    lock: descriptor of an open file that holds the machine's lock for as long as any process has
    it. output: one of what shall be stdout and stderr.
    """
    os.setsid()
    _end_with_supervisor()
    if output is not None:
        _write_to(output)
    _keep_from_children(connection.fileno(), lock)
    # Before any implementation is imported: the clock binds what it tells the time with.
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


def _write_to(output: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if sys.stdout is not None:  # a line that was printed before a crash shall not be lost
        sys.stdout.reconfigure(line_buffering=True)


def _keep_from_children(*descriptors: int) -> None:
    """A process that is forked or started here must keep neither the lock nor the connection."""

    def replace() -> None:  # not closed: a closed number would be another file's soon
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
