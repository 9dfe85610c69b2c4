"""The worker: a process that touches the device, measures on request, and may be lost.

It says each step before it takes it, so that the supervisor knows what was running when it dies or
hangs. Requests and replies are tuples whose first word says what they are; every request ends with
`done`, `wrong` (a result that is not right) or `failed` (this process is not to be trusted again).
"""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# Of what a worker is asked and answers: where it is another one, a conductor and a worker of two
# versions of the code do not understand each other.
PROTOCOL = 1


def main(connection: Connection, device: str, lock: Any) -> None:
    """Serve requests until the supervisor closes the connection; runs in the worker's process.

    lock: an open file that holds the device's lock for as long as any process has it.
    """
    os.setsid()
    _die_with_parent()
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


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


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
