"""The worker: the process that touches the device, measures groups, and may be lost.

It is forked from a server that has imported torch and not touched the device. It says each step
before it takes it, so that the supervisor knows what was running when the worker dies or hangs.
"""

from __future__ import annotations

import fcntl
import gc
import math
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lmperf.benchmark import Case, Observed, Timed, Unsupported, Workload, load

Send = Callable[..., None]
Failures = dict[tuple[Case, str], dict[str, Any]]


def lock_path(device: str) -> Path:
    """The kernel lock that serialises measurement on a device, for every user of this machine."""
    return Path(tempfile.gettempdir()) / f"lmperf-{device}.lock"


def main(connection: Connection, device: str) -> None:
    """Serve groups until the supervisor closes the connection; runs in the forked process."""
    os.setsid()
    _die_with_parent()
    lock = open(lock_path(device), "a")  # noqa: SIM115 - held until this process ends
    _wait_for(lock, connection)
    connection.send(("ready", _device_facts(device)))
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        serve(connection, device, *request)


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait_for(lock, connection: Connection) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        connection.send(("waiting", lock.name))
        fcntl.flock(lock, fcntl.LOCK_EX)


def _device_facts(device: str) -> dict[str, Any]:
    import torch

    facts = {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
    }
    if device == "cpu":
        facts["threads"] = torch.get_num_threads()
    if device == "cuda":
        facts["multiprocessors"] = torch.cuda.get_device_properties(0).multi_processor_count
        facts["cudnn"] = torch.backends.cudnn.version()
    return facts


def serve(
    connection: Connection,
    device: str,
    stem: str,
    implementations: dict[str, str],
    cases: Sequence[Case],
    failures: Failures,
    seed: int,
) -> None:
    """Measure one group, and send its rows; a fault that poisons the process ends with `failed`."""
    benchmark = load(stem, implementations)

    def send(*message: Any) -> None:
        connection.send(message)

    try:
        if isinstance(benchmark, Observed):
            _observe(benchmark, cases, failures, device, seed, send)
        else:
            _Group(benchmark, cases, failures, device, seed, send).measure()
    except _Poisoned as fault:
        send("failed", fault.case, fault.phase, fault.row)
        return
    send("done")
    _clear(device)


class _Poisoned(Exception):
    """A fault after which this process is not to be trusted with another measurement."""

    def __init__(self, case: Case, phase: str | None, row: dict[str, Any]):
        super().__init__(case.name)
        self.case, self.phase, self.row = case, phase, row


def _clear(device: str) -> None:
    import torch

    # A group starts without the graphs of the one before: past eight shapes dynamo would fall back.
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def failure_row(error: BaseException) -> dict[str, Any]:
    """Status and reason of a fault: what the row of its case will say."""
    from lmperf.measuring.memory import out_of_memory

    memory = out_of_memory(error)
    if memory is not None:
        requested, free = memory.requested_bytes, memory.free_bytes
        return {"status": "oom", "requested_bytes": requested, "free_bytes": free}
    if isinstance(error, Unsupported):
        return {"status": "unsupported", "reason": _one_line(error)}
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return {"status": "crash", "reason": f"{type(error).__name__}: {_one_line(error)} ({place})"}


def _one_line(error: BaseException, limit: int = 240) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _guarded(case: Case, phase: str | None, step: Callable[[], Any]) -> Any:
    """Run a step of a case; what goes wrong in it becomes a row, and this process is replaced."""
    try:
        return step()
    except Unsupported:
        raise
    except Exception as error:
        raise _Poisoned(case, phase, failure_row(error)) from error


def _observe(
    benchmark: Observed,
    cases: Sequence[Case],
    failures: Failures,
    device: str,
    seed: int,
    send: Send,
) -> None:
    for case in cases:
        for phase in benchmark.phases:
            if (case, phase) in failures:
                send("rows", [_row(case, phase, failures[case, phase], seed)])
                continue
            send("step", case, phase, "observing")
            try:
                rows = _guarded(
                    case, phase, lambda c=case, p=phase: benchmark.observe(c, p, device, seed)
                )
            except Unsupported as reason:
                rows = [failure_row(reason)]
            checked = [_judged(row) for row in rows]
            send("rows", [_row(case, phase, row, seed) for row in checked])


def _judged(row: dict[str, Any]) -> dict[str, Any]:
    """The status that an observation's own error and bound give it."""
    error, bound = row.get("max_error"), row.get("error_bound")
    if error is None or bound is None:
        return {"status": "ok", **row}
    return {**_verdict(error, bound), **row}


def _verdict(error: float, bound: float) -> dict[str, Any]:
    if not math.isfinite(error):
        return {"status": "nan", "reason": "the result is not finite"}
    return {"status": "ok" if error <= bound else "failed_check"}


def _row(case: Case, phase: str, columns: dict[str, Any], seed: int) -> dict[str, Any]:
    named = {**case.axes, "implementation": case.implementation, "phase": phase}
    return {**named, **columns, "seed": seed}


class _Group:
    """The cases of one group on their way from preparation to rows."""

    def __init__(
        self,
        benchmark: Timed,
        cases: Sequence[Case],
        failures: Failures,
        device: str,
        seed: int,
        send: Send,
    ):
        from lmperf.measuring.clock import clock_for, synchronizer

        self.benchmark, self.cases, self.failures = benchmark, cases, failures
        self.device, self.seed, self.send = device, seed, send
        self.clock = clock_for(benchmark.clock, device)
        self.synchronize = synchronizer(device)
        self.workloads: dict[Case, Workload] = {}
        self.columns: dict[tuple[Case, str], dict[str, Any]] = {}

    def measure(self) -> None:
        shared: dict[str, Any] = {}
        for case in self.cases:
            if self._phases(case):
                self._admit(case, shared)
        for case, phase in self.failures:
            self._send_rows([(case, phase, self.failures[case, phase])])
        for phase in self.benchmark.phases:
            self._time(phase)

    def _phases(self, case: Case) -> list[str]:
        return [phase for phase in self.benchmark.phases if (case, phase) not in self.failures]

    def _admit(self, case: Case, shared: dict[str, Any]) -> None:
        try:
            self._prepare(case, shared)
        except Unsupported as reason:
            for phase in self._phases(case):
                self._send_rows([(case, phase, failure_row(reason))])

    def _prepare(self, case: Case, shared: dict[str, Any]) -> None:
        from lmperf.measuring.rounds import entered

        self.send("step", case, None, "preparing")
        workload = _guarded(
            case,
            None,
            lambda: self.benchmark.prepare(case, self.device, self.seed, shared),
        )
        with entered(workload):
            seconds = sum([self._first_call(case, phase, workload) for phase in self._phases(case)])
            gate = self._gate(case, workload)
            for phase in self._phases(case):
                memory = self._memory(case, phase, workload)
                compiled = {"compile_s": seconds} if workload.compiles else {}
                self.columns[case, phase] = {**workload.columns, **compiled, **gate, **memory}
        self.workloads[case] = workload

    def _first_call(self, case: Case, phase: str, workload: Workload) -> float:
        self.send("step", case, phase, "first call")
        start = time.perf_counter()

        def call() -> None:
            timed = workload.phases[phase]
            timed.run(timed.before())
            self.synchronize()

        _guarded(case, phase, call)
        return time.perf_counter() - start

    def _gate(self, case: Case, workload: Workload) -> dict[str, Any]:
        if workload.gate is None:
            return {}
        self.send("step", case, None, "checking")
        gate = _guarded(case, None, lambda: workload.gate(self._phases(case)))
        error, bound = gate.errors[gate.worst], gate.bounds[gate.worst]
        named = {f"error_{name}": value for name, value in gate.errors.items()}
        row = {**_verdict(error, bound), "max_error": error, "error_bound": bound, **named}
        if row["status"] != "ok":
            row.setdefault("reason", f"{gate.worst} differs from the float64 reference")
        return row

    def _memory(self, case: Case, phase: str, workload: Workload) -> dict[str, Any]:
        from lmperf.measuring.footprint import phase_memory

        self.send("step", case, phase, "memory")
        timed = workload.phases[phase]
        return _guarded(case, phase, lambda: phase_memory(workload, timed, self.device))

    def _time(self, phase: str) -> None:
        from lmperf.measuring.rounds import in_turn, pace_of

        ready = [case for case in self.workloads if (case, phase) in self.columns]
        for case in ready:
            if self.columns[case, phase].get("status", "ok") != "ok":
                self._send_rows([(case, phase, self.columns[case, phase])])
        ready = [case for case in ready if self.columns[case, phase].get("status", "ok") == "ok"]
        if not ready:
            return

        def announce(position: int) -> None:
            self.current = ready[position]
            self.send("step", ready[position], phase, "timing")

        workloads = [(self.workloads[case], self.workloads[case].phases[phase]) for case in ready]
        try:
            pace = pace_of(self.benchmark.clock, self.device)
            timings = in_turn(self.clock, workloads, pace, announce)
        except Exception as error:
            raise _Poisoned(self.current, phase, failure_row(error)) from error
        together = {"together": uuid.uuid4().hex[:12], **load_facts(self.device)}
        rows = []
        for case, (_, timed), timing in zip(ready, workloads, timings, strict=True):
            columns = {"status": "ok", **timing.statistics(), **achieved(timed, timing.times)}
            rows.append((case, phase, {**columns, **together, **self.columns[case, phase]}))
        self._send_rows(rows)

    def _send_rows(self, rows: list[tuple[Case, str, dict[str, Any]]]) -> None:
        self.send("rows", [_row(case, phase, columns, self.seed) for case, phase, columns in rows])


def achieved(phase: Any, times: Sequence[float]) -> dict[str, Any]:
    """FLOPs and bytes of a call in closed form, and the rates that the median time gives."""
    seconds = statistics.median(times) / 1e3
    columns: dict[str, Any] = {"flops": phase.flops, "bytes": phase.bytes}
    if phase.flops:
        columns["tflops"] = phase.flops / seconds / 1e12
    if phase.bytes:
        columns["bandwidth_gbps"] = phase.bytes / seconds / 1e9
    return columns


def load_facts(device: str) -> dict[str, Any]:
    """Clock, power and throttle reasons of the device, read right after a timing."""
    if device != "cuda":
        return {}
    import pynvml as nvml
    import torch

    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        return {
            "clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle": hex(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        }
    except nvml.NVMLError:
        return {}
