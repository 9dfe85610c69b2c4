"""Starts ranks in milliseconds, as forks of a process that has imported torch but not used it.

The worker forks the server before it touches the device. The server forks a keeper for each rank,
which forks the rank, waits for its end and writes the exit code to a pipe. So all of them descend
from the worker, and each ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn

from lmperf.measuring import descendants, follow, rank_process

_LONGEST = 2**16  # bytes of a request


class RankProcess:
    """A rank as its worker sees it.

    Attributes:
        pid: its process id.
        connection: the worker's end of the pipe to the rank.
        ended: descriptor that becomes readable when the rank has ended.
    """

    def __init__(self, pid: int, connection: Connection, ended: int):
        self.pid, self.connection, self.ended = pid, connection, ended

    def exitcode(self) -> int | None:
        """Return the exit code (negative: a signal), once `ended` is readable; None: unknown."""
        text = os.read(self.ended, 16)
        return int(text) if text else None

    def close(self) -> None:
        self.connection.close()
        os.close(self.ended)


class RankServer:
    """Forks the server from this process, which must not have used torch's threads or a device."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        owner = os.getpid()
        self.pid = _fork(lambda: _serve(theirs, owner), self._socket)
        theirs.close()
        # If the server were paused before the kernel watches its parent, it could outlive it.
        self._socket.recv(1)

    def fileno(self) -> int:
        """Return the descriptor of the connection to the server."""
        return self._socket.fileno()

    def start(self, *arguments: Any) -> RankProcess:
        """Start a rank; `arguments` are those of `rank_process.main` after the first two.

        Raises:
            ConnectionError: the server has ended.
        """
        connection, theirs = Pipe()
        ended, status = os.pipe()
        try:
            message = [pickle.dumps(arguments)]
            socket.send_fds(self._socket, message, [theirs.fileno(), status])
            answer = self._socket.recv(16)
        finally:
            theirs.close()
            os.close(status)
        if not answer:
            raise ConnectionError("the server of ranks has ended")
        return RankProcess(int(answer), connection, ended)


def kill(*pids: int) -> None:
    """Kill processes and all their descendants at once."""
    descendants.send(descendants.stop(*pids), signal.SIGKILL)


def _fork(run: Callable[[], Any], *inherited: socket.socket) -> int:
    """Call `run` in a new process, without the sockets `inherited`; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for one in inherited:
            one.close()
        run()
    finally:
        os._exit(1)


def _serve(requests: socket.socket, owner: int) -> NoReturn:
    follow.die_with(owner)
    requests.sendall(b"\0")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended keepers
    server = os.getpid()
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, _LONGEST, 2)
        if not message:
            os._exit(0)
        _fork(partial(_keep, requests, server, *descriptors, pickle.loads(message)))
        for one in descriptors:
            os.close(one)


def _keep(
    requests: socket.socket, server: int, descriptor: int, status: int, arguments: tuple
) -> NoReturn:
    follow.die_with(server)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keeper = os.getpid()

    def run() -> None:
        os.close(status)
        rank_process.main(Connection(descriptor), keeper, *arguments)

    rank = _fork(run, requests)
    os.close(descriptor)
    requests.sendall(str(rank).encode())
    requests.close()
    _, found = os.waitpid(rank, 0)
    with contextlib.suppress(OSError):  # the worker has ended
        os.write(status, str(os.waitstatus_to_exitcode(found)).encode())
    os._exit(0)
