"""Check the user's own implementations in the configuration, before anything is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lmperf.benchmark import Benchmark
from lmperf.errors import UserError, one_line
from lmperf.measuring.processes import adopt_orphans, end, end_children, family, locks_of_builds
from lmperf.sources import find, how_to_install

_CHILD = """
import sys
sys.path[:] = {path!r}
from lmperf.own import trial
trial.answer({asked!r}, {calls}, {parent})
"""
_LONGEST = 900  # characters of a reason
TOO_LONG = "importing it takes longer than"

# What is asked of `trial.answer`: an entry, what a benchmark takes, kind and options, as for
# `problem_of`.
Asked = tuple[str, str, str, dict[str, Any]]


def check_names(benchmark: Benchmark) -> None:
    """Check that each custom implementation has an unused name and an existing module.

    Imports none of the modules.

    Raises:
        UserError: the project has an implementation of that name, or the module does not exist.
    """
    names = {implementation.name for implementation in benchmark.implementations}
    for name, custom in benchmark.external.items():
        key = f"config: implementations.{benchmark.stem}.{name}"
        if name in names:
            raise UserError(f"{key}: the project has an implementation {name}; choose another name")
        if find(custom.module) is None:
            raise UserError(
                f"{key} is {custom.entry!r}: there is no module {custom.module};"
                f" {how_to_install(custom.module)}"
            )


def problem_of(
    entry: str,
    takes: str,
    kind: str = "",
    limit_s: float = 120.0,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Return why a function or class cannot be used as what a benchmark takes, in one line; "" if
    it can.

    A child process imports and calls it: see `entries_of`.

    kind: the kind of strategy that is meant, as of `signatures.kind_of`; empty: any. Of no effect
        unless the benchmark takes strategies.
    limit_s: how long import and call may take.
    options: keyword arguments that it is called with.
    """
    [(use, problem)] = entries_of([(entry, takes, kind, {**options})], limit_s, calls=True)
    if use != entry:
        problem = f"it returns {use.partition(':')[2]}; write {use}"
    return one_line(f"{entry}: {problem}", _LONGEST) if problem else ""


def entries_of(
    asked: Sequence[Asked], limit_s: float = 120.0, calls: bool = False
) -> list[tuple[str, str]]:
    """Return for each entry the one to configure, and why it cannot be used; "" if it can.

    Another entry is to be configured where one is a function that only returns a class.

    A child process imports the user's modules, so that an import cannot print, exit or hang in this
    process. Processes that it has started are ended, even in other sessions: this process adopts
    them if their parent ends.

    limit_s: how long all imports and calls may take. calls: whether to call attention and models,
        too: see `trial.answer`.
    """
    path = [str(folder) for folder in sys.path]
    child = _CHILD.format(path=path, asked=asked, calls=calls, parent=os.getpid())
    ours = family(os.getpid())
    adopt_orphans()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", child],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Do not wait for the end of the pipe: a process that left the group may hold it open.
    os.set_blocking(process.stdout.fileno(), False)
    with process.stdout as output:
        try:
            status = process.wait(limit_s)
            how = f"exit code {status}" if status >= 0 else signal.Signals(-status).name
            problem = f"importing it ends Python ({how})"
        except subprocess.TimeoutExpired:
            problem = f"{TOO_LONG} {limit_s:g} s"
        finally:
            content = output.read() or b""  # not what it says of its interruption
            end(process.pid)
            process.wait()
            end_children(but=ours)
            adopt_orphans(False)
    if not content and problem.startswith(TOO_LONG):
        problem += locks_of_builds()
    answers = {number: answer for number, *answer in map(json.loads, content.splitlines())}
    last = [answers.get(number, (entry, problem)) for number, (entry, *_) in enumerate(asked)]
    return [(use, one_line(words, _LONGEST)) for use, words in last]
