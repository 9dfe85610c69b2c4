"""`lmperf init`: set up the report in a repository that has its own kernels or models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from lmperf import workflow
from lmperf.benchmarks import load, stems
from lmperf.commands.options import CONFIG, say, scaffold
from lmperf.config import config_of
from lmperf.custom import check_names
from lmperf.errors import UserError
from lmperf.evidence.machine import is_in_git, version_of

# Kind of custom implementation -> what `Benchmark.takes` says of the benchmarks that measure it.
KINDS = {"attention": "attention", "lrpe": "lrpe", "model": "model", "train_step": "model"}
# A train step is measured in this benchmark only.
_OF_STEPS = "end_to_end"

CI = Path(".github/workflows/report.yml")
PROFILE = Path("profiles/default/profile.yaml")
# The files that --templates writes into templates/.
_OWN = ("end_to_end.md.j2", "our_question.md.j2")

_EXAMPLE = ' {}\n#  flash_attention: { mine: "package.module:function" }'
# Files of settings for Git -> their lines. Where there is such a file, lacking lines are named.
_FOR_GIT = {
    Path(".gitignore"): (
        *("/.lmperf/", "/.snakemake/", "/logs/", "/site/", "__pycache__/"),
        *("/report/*/store/", "/report/*/traces/"),
    ),
    Path(".gitattributes"): ("/report/** -text",),  # Git must not change their line endings
}


def _entry_option(kind: str):
    option = f"--{kind.replace('_', '-')}"
    return click.option(option, kind, metavar="MODULE:NAME", help=f"Your {option[2:]}.")


@click.command(short_help="Set up the report in your own repository.")
@_entry_option("attention")
@_entry_option("lrpe")
@_entry_option("model")
@_entry_option("train_step")
@click.option("--templates", is_flag=True, help="Write templates for words of your own instead.")
def init(templates: bool, **given: str | None):
    """Write the files with which this folder of a Git repository measures and reports its own
    implementations: a Snakefile that includes the workflow of lmperf, Snakemake's settings for it,
    a configuration, .gitignore, .gitattributes, and at the top of the repository a file for
    continuous integration. Existing files stay as they are.

    With --templates, write a template that adds a note to a page, and one that is a page of its
    own, for you to edit.

    \b
    Examples:
      lmperf init --attention my_package.attention:FlashAttention
      lmperf init --templates
    """
    if templates:
        _write({Path("templates") / name: scaffold(name).template for name in _OWN})
        say("next: edit them, then lmperf report")
        return
    if not is_in_git(Path()):
        raise UserError(f"{Path.cwd()} is in no Git repository; run git init there")
    is_top = Path(".git").exists()
    files = {
        Path("Snakefile"): scaffold("Snakefile.txt").template,
        CONFIG: _config({kind: of for kind, of in given.items() if of}),
        PROFILE: (workflow.FOLDER / PROFILE).read_text(encoding="utf-8"),
        **({CI: _ci()} if is_top else {}),
    }
    for path, lines in _FOR_GIT.items():
        if not path.exists():
            files[path] = "\n".join(lines) + "\n"
            continue
        there = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if lacking := [line for line in lines if line not in there]:
            say(f"{path} exists and stays as it is; add these lines to it: {' '.join(lacking)}")
    _write(files)
    if not is_top:
        say(f"not written: {CI}, which works at the top of a repository only")
    say("next: snakemake --cores 1 report/report.md --config preset=quick")


def _write(files: Mapping[Path, str]) -> None:
    if there := [str(path) for path in files if path.exists()]:
        raise UserError(f"{', '.join(there)} exists already, and init overwrites nothing")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


def _config(given: Mapping[str, str]) -> str:
    """The text of a valid configuration with these entries, by kind."""
    entries = {}
    for kind, entry in given.items():
        taking = [stem for stem in stems() if load(stem).takes == KINDS[kind]]
        for stem in [_OF_STEPS] if kind == "train_step" else taking:
            name = "my_step" if kind == "train_step" else "mine"
            entries[f"implementations.{stem}.{name}"] = entry
    config = config_of({}, CONFIG, entries)
    lines = ""
    for stem, custom in config.implementations.items():
        check_names(load(stem, config.external(stem)))
        named = (f'{name}: "{one.use}"' for name, one in custom.items())
        lines += f"\n  {stem}: {{ {', '.join(named)} }}"
    return scaffold("config.yaml").substitute(implementations=lines or _EXAMPLE)


def _ci() -> str:
    """The file for continuous integration of lmperf itself, with another command that installs."""
    text = (workflow.FOLDER / CI).read_text(encoding="utf-8")
    package = f"lmperf=={version_of('lmperf')}"
    return re.sub(r"(?m)^( +run:) pip install .*$", rf"\1 pip install {package}", text)
