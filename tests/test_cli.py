"""Tests of the command line: options before and after a command, and one-line errors."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmperf import cli, errors
from lmperf.commands import options
from lmperf.errors import _is_users as is_users


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "large"),
    [
        ("lmperf.cli", {"torch", "numpy", "pandas", "jinja2"}),
        ("lmperf.reporting.written", {"torch", "pandas", "vl_convert"}),  # what a no-op needs
    ],
)
def test_start_of_the_command_line_imports_nothing_large(module, large):
    code = f"import sys, {module}; print({large} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "[1]", "list"], "--config: must be KEY=VALUE"),
        (["frob"], "No such command 'frob'"),
        (["measure"], "Missing argument 'STEM'. See: lmperf measure --help"),
        (["list", "--frob"], "No such option"),
        (["-C", "nowhere", "list"], "'-C': Directory 'nowhere' does not exist. See: lmperf --help"),
        (["try", "a:b", "--as", "modl"], "'modl' is not one of 'attention', 'lrpe', 'model'"),
        (["run", "atention"], "unknown benchmark atention; did you mean attention?"),
        (["run", "attention", "--only", "seqlen=1"], "no axis seqlen; did you mean seq_len?"),
        (
            ["run", "attention", "--implementations", "eagr"],
            "=eagr in the grid; did you mean",
        ),
        (["run", "attention", "--implementations", ""], "no implementation= in the grid"),
        (
            ["list", "--config", "grid.atention.seq_len=[1]"],
            "which is not a benchmark; did you mean attention?",
        ),
        (["run", "attention", "--only", "seq_len"], "must be AXIS=VALUE"),
        (["verify", "here", "--all"], "--all verifies every machine"),
        (["diff", "a", "b", "--at-least", "200"], "200"),
    ],
)
def test_bad_arguments_give_one_line_and_exit_code_2(
    tmp_path, monkeypatch, capfd, arguments, words
):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    out, error = capfd.readouterr()
    assert not out and error.startswith("lmperf: ") and error.count("\n") == 1
    assert words in error


def test_every_help_text_has_an_example(capfd):
    for name in cli.lmperf.commands:
        assert cli.main([name, "--help"]) == 0
        assert f"  lmperf {name}" in capfd.readouterr().out


def test_directory_option_selects_the_checkout(tmp_path, monkeypatch, capfd):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("machine: there\npreset: cpu\n")
    monkeypatch.chdir("/")
    assert cli.main(["-C", str(tmp_path), "list"]) == 0
    assert capfd.readouterr().out.startswith("machine there, preset cpu\n")
    assert sys.path[0] == str(tmp_path)


def test_deleted_folder_is_reported_in_one_line(tmp_path, monkeypatch, capfd):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["list"]) == 2
    assert capfd.readouterr().err.startswith("lmperf: the current folder was deleted; change into")


@pytest.mark.parametrize("before", [True, False])
def test_config_option_works_before_and_after_the_command(tmp_path, monkeypatch, capfd, before):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text(
        "machine: here\npreset: cpu\ngrid: {attention: {d_head: [16], dtype: [float32]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    keys = ["--config", "grid.attention.seq_len=[64,128]"]
    assert cli.main([*keys, "list", "attention"] if before else ["list", "attention", *keys]) == 0
    listed = capfd.readouterr().out
    assert "seq_len=64, d_head=16, dtype=float32" in listed and "seq_len=128" in listed
    assert "seq_len=256" not in listed and "d_head=64" not in listed


def test_refused_file_operation_is_reported_in_one_line(monkeypatch, capfd):
    def refused(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "report/here")

    monkeypatch.setattr(options, "load_config", refused)
    assert cli.main(["list"]) == 2
    assert capfd.readouterr().err == f"lmperf: report/here: {os.strerror(errno.ENOSPC)}\n"


def test_fault_of_lmperf_is_one_line_that_names_its_traceback(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(options, "load_config", lambda path, overrides: Path(path).no_such_name)
    monkeypatch.setattr(errors, "_is_users", lambda path: "tests" not in path and is_users(path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").touch()
    assert cli.main(["list"]) == 70
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("lmperf: this is a fault of lmperf, please report it: AttributeError: ")
    kept = Path(said.partition("; traceback: ")[2])
    assert kept == tmp_path / ".lmperf/tracebacks.txt"
    assert "Traceback" in kept.read_text() and "no_such_name" in kept.read_text()


@pytest.mark.parametrize(("encoding", "printed"), [("latin-1", b"\xb5 ?"), ("ascii", b"? ?")])
def test_characters_that_a_terminal_lacks_are_replaced(tmp_path, monkeypatch, encoding, printed):
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(cli.lmperf.commands["list"], "callback", lambda **_: print("µ ˢ"))
    assert cli.main(["list"]) == 0
    out.flush()
    assert out.buffer.getvalue() == printed + b"\n"


@pytest.mark.process
def test_files_are_utf8_in_any_locale(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("# für später\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    run = [sys.executable, "-m", "lmperf.cli", "-C", str(tmp_path), "init"]
    done = subprocess.run(run, env={**os.environ, **ascii_only}, stdin=subprocess.DEVNULL)
    assert done.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize("command", ["list", "--help"])
def test_closed_pipe_ends_a_command_quietly(command):
    read, write = os.pipe()
    os.close(read)
    run = [sys.executable, "-m", "lmperf.cli", command]
    done = subprocess.run(run, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("columns", "is_terminal", "says"), [(30, True, True), (200, True, False), (30, False, False)]
)
def test_tables_wider_than_the_terminal_are_named(monkeypatch, capfd, columns, is_terminal, says):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    table = "a sentence that is longer than it\n" + "-" * 30 + "  ---\n"
    options.print_tables(table)
    out, said = capfd.readouterr()
    words = "lmperf: tables are up to 35 columns wide, this terminal 30: pipe into less -S\n"
    assert (out, said) == (table, words if says else "")
