"""The command line: `lmperf COMMAND`, from which the commands of `lmperf.commands` are called.

Exit codes: 0 done; 1 `verify` found causes, `diff` or `compare` a regression, `selftest` a case
that did not hold, `run` or `try` something that is not right, `doctor` something that a run needs
and does not have; 2 bad input, said in one line.
"""

from __future__ import annotations

import errno
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
    machine,
    measure,
    new,
    report,
    run,
    schema,
    selftest,
    show,
    verify,
)
from lmperf.commands.options import CONFIG, Settings, config_option, say
from lmperf.errors import UserError

# Of the machine and not of the code: said in a line, as bad input is.
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class _InOrder(click.Group):
    """Commands in the order in which a person needs them, not by the alphabet."""

    def list_commands(self, context: click.Context) -> Sequence[str]:
        return tuple(self.commands)


@click.group(
    cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="lmperf")
@click.option("-C", "directory", type=click.Path(path_type=Path), help="Run as if started there.")
@click.option("--configfile", type=click.Path(path_type=Path), default=CONFIG, show_default=True)
@config_option()
@click.pass_context
def lmperf(context: click.Context, directory: Path | None, configfile: Path, overrides):
    """A reproducible performance report for Transformer language models.

    `lmperf COMMAND --help` has an example of each.
    """
    if directory is not None:
        _change_to(directory)
    # An implementation of the user's own may lie in the checkout, however this was started.
    if (here := _current_directory()) not in sys.path:
        sys.path.insert(0, here)
    context.obj = Settings(configfile, overrides)


for command in (
    *(due.list_, run.run, run.try_, show.show, doctor.doctor, new.new),
    *(measure.measure, report.report, report.summary, verify.verify),
    *(diff.diff, compare.compare, selftest.selftest),
    *(machine.machine, machine.prune, schema.schema),
):
    lmperf.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    # Told to end, it ends in order: its workers with it, nothing half-written.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    given = None if arguments is None else [*arguments]
    try:
        return lmperf.main(given, prog_name="lmperf", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as help_:
        help_.show()
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        more = f" See: {context.command_path} --help" if context else ""
        say(" ".join(error.format_message().split()) + more)
        return 2
    except UserError as error:
        say(str(error))
        return 2
    except BrokenPipeError:  # `lmperf list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        say(str(UserError(f"{error.filename or 'the system'}: {error.strerror}")))
        return 2
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise UserError("the current directory is gone; change into the checkout") from None


def _change_to(directory: Path) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise UserError(f"-C {directory}: {error.strerror}; it must be a folder") from None


if __name__ == "__main__":
    sys.exit(main())
