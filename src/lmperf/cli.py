"""The command line: `lmperf COMMAND`. Each command is a module of `lmperf.commands`.

Exit codes:
    0: done.
    1: `verify` or `publish` found a fault, `diff` or `compare` a regression, `selftest` a case that
       did not hold, `run` or `try` a failed row, `run --against` one that is not reproduced,
       `doctor` something missing that a run needs, or a pipe was closed.
    2: bad input, a refused file operation or an error in the user's code, reported in one line.
    70: a fault of lmperf, reported in one line that names the file with the traceback.
    129, 130, 143: hung up, interrupted, terminated.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lmperf.commands import (
    compare,
    diff,
    doctor,
    due,
    export,
    init,
    measure,
    new,
    publish,
    report,
    run,
    selftest,
    show,
    site,
    verify,
)
from lmperf.commands.options import CONFIG, Settings, config_option, say
from lmperf.errors import UserError, explained


class _InOrder(click.Group):
    """A group that lists its commands in the order of registration, not alphabetically."""

    def list_commands(self, context: click.Context) -> Sequence[str]:
        return tuple(self.commands)


@click.group(
    cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="lmperf")
@click.option(
    "-C",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Change to this directory first.",
)
@click.option("--configfile", type=click.Path(path_type=Path), default=CONFIG, show_default=True)
@config_option
@click.pass_context
def lmperf(context: click.Context, directory: Path | None, configfile: Path, overrides):
    """A reproducible performance report for Transformer language models.

    `lmperf COMMAND --help` shows an example.
    """
    if directory is not None:
        os.chdir(directory)
    try:
        here = os.getcwd()
    except FileNotFoundError:
        words = "the current folder was deleted; change into another one, or name one by -C DIR"
        raise UserError(words) from None
    # The module of a custom implementation may lie in the current directory.
    if here not in sys.path:
        sys.path.insert(0, here)
    context.obj = Settings(configfile, overrides)


for command in (
    *(due.list_, run.run, run.try_, show.show, doctor.doctor, init.init, new.new),
    *(measure.measure, report.report, site.site),
    *(verify.verify, publish.publish, export.export),
    *(diff.diff, compare.compare, selftest.selftest),
):
    lmperf.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    # These raise SystemExit, so that workers are stopped, checkouts are removed and no file is left
    # half-written. nohup has SIGHUP ignored.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale that lacks characters of a table
        sys.stdout.reconfigure(errors="replace")
    try:
        return lmperf.main(arguments, prog_name="lmperf", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as help_:
        help_.show()
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        more = f" See: {context.command_path} --help" if context else ""
        say(" ".join(error.format_message().split()) + more)
        return 2
    except BrokenPipeError:  # as in `lmperf list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except Exception as error:
        words, code = explained(error)
        say(words)
        return code


if __name__ == "__main__":
    sys.exit(main())
