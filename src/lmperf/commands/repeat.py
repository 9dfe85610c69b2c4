"""`lmperf repeat`: measure some rows a second time. The last measuring job of a run runs this."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from lmperf.commands.options import Settings, config_option, gpus_option, interruption, say
from lmperf.commands.remeasured import at_rest
from lmperf.errors import UserError


@click.command(short_help="Measure 24 rows a second time: how far do times repeat?")
@click.option("--force", is_flag=True, help="Measure every drawn row, fresh ones as well.")
@click.option("--log", type=click.Path(path_type=Path), help="Append a line for each row.")
@gpus_option
@click.option("--parent", type=int, metavar="PID", help="Stop when this process ends.")
@config_option()
@click.pass_obj
def repeat(
    settings: Settings,
    force: bool,
    log: Path | None,
    gpus: int | None,
    parent: int | None,
    overrides,
):
    """Measure rows of all timed benchmarks a second time, in a new process, and write them to
    evidence/repeatability.csv. The same rows are drawn in every run. Only those that are missing or
    stale are measured.

    \b
    Example:
      lmperf repeat --force
    """
    from lmperf.compiler import require_caches
    from lmperf.evidence.record import repeat as measure_again
    from lmperf.measuring.follow import die_with
    from lmperf.measuring.lock import machine_lock
    from lmperf.measuring.stopwatch import process_age

    require_caches()
    if parent is not None:
        die_with(parent)
    # Plan while holding the lock: another run may have measured some rows before.
    with interruption(silent=parent is not None), machine_lock(say, gpus):
        project = settings.project(overrides)
        if not project.can_measure:
            raise UserError("cannot measure: torch is not installed; run lmperf doctor")
        repeats = replace(project.repeats, forced=force)
        if not repeats.drawn:
            raise UserError("the configuration has no timed benchmark; there is nothing to repeat")
        with at_rest(project, repeats):
            measure_again(project, repeats, log, process_age())
    print(repeats.evidence.path)
