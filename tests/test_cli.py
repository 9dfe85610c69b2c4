"""What the command line takes, and how it says what it does not."""

import errno
import os
import subprocess
import sys

import pytest

from lmperf import cli


def test_the_checkout_is_on_the_path_however_lmperf_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    cli.main(["schema"])
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize("command", ["report", "summary", "verify", "prune"])
@pytest.mark.parametrize("name", ["../../x", "here/../there", "report.md", "", "a\nb", "x" * 300])
def test_a_machine_is_a_name_and_no_path_in_every_command(
    tmp_path, monkeypatch, capfd, command, name
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([command, name]) == 2
    out, error = capfd.readouterr()
    assert not out and error.startswith("lmperf: MACHINE is ") and error.count("\n") == 1
    assert not (tmp_path / "report").exists()


def test_keys_that_are_no_mapping_are_refused_in_words(tmp_path):
    command = [sys.executable, "-m", "lmperf.cli", "--set", "[1]", "plan"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "must be an object of keys and values" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_what_the_system_refuses_is_one_line(monkeypatch, capfd, number):
    def refused(*arguments):
        raise OSError(number, os.strerror(number), "report/here")

    monkeypatch.setattr(cli, "load_config", refused)
    assert cli.main(["plan"]) == 2
    assert capfd.readouterr().err == f"lmperf: report/here: {os.strerror(number)}\n"


def test_another_error_of_the_system_is_a_fault_of_the_code(monkeypatch):
    def wrong(*arguments):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(cli, "load_config", wrong)
    with pytest.raises(OSError, match="Bad file descriptor"):
        cli.main(["plan"])


def test_a_directory_that_is_gone_is_named(tmp_path):
    command = "import os, sys; os.rmdir(os.getcwd()); from lmperf.cli import main; sys.exit(main())"
    here = tmp_path / "gone"
    here.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", command, "plan"], cwd=here, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "the current directory is gone" in done.stderr
