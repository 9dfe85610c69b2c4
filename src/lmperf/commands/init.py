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

_FOLDERS = "# report: lmperf-report # another folder for the report\n# site: lmperf-site\n"
_EXAMPLE = ' {}\n#  flash_attention: { mine: "package.module:function" }'
# Files of settings for Git -> their lines. Where there is such a file, lacking lines are named.
_FOR_GIT = {
    Path(".gitignore"): (
        *("/.lmperf/", "/.snakemake/", "/logs/", "/{site}/", "__pycache__/"),
        *("/{report}/*/store/", "/{report}/*/traces/"),
    ),
    Path(".gitattributes"): ("/{report}/** -text",),  # Git must not change their line endings
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
    continuous integration. Existing files stay as they are; where report/ or site/ has some, the
    configuration names another folder.

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
    is_top, folders = Path(".git").exists(), _folders()
    files = {
        Path("Snakefile"): scaffold("Snakefile.txt").template,
        CONFIG: _config({kind: of for kind, of in given.items() if of}, folders),
        PROFILE: (workflow.FOLDER / PROFILE).read_text(encoding="utf-8"),
        **({CI: _ci(folders)} if is_top else {}),
    }
    for path, wanted in _FOR_GIT.items():
        lines = [line.format(**folders) for line in wanted]
        if not path.exists():
            files[path] = "\n".join(lines) + "\n"
            continue
        there = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if lacking := [line for line in lines if line not in there]:
            say(f"{path} exists and stays as it is; add these lines to it: {' '.join(lacking)}")
    _write(files)
    for key in (key for key, name in folders.items() if name != key):
        say(f"{key} is in use, and stays as it is: {CONFIG} names {folders[key]} instead")
    if not is_top:
        say(f"not written: {CI}, which works at the top of a repository only")
    say(f"next: snakemake --cores 1 {folders['report']}/report.md --config preset=quick")


def _write(files: Mapping[Path, str]) -> None:
    from lmperf.reporting.files import write_files  # pandas is slow to import

    write_files(files, "init overwrites nothing")
    print(*files, sep="\n")


def _folders() -> dict[str, str]:
    """Key -> folder that lmperf may write to: another one where the default has files already."""
    from lmperf.reporting.files import is_foreign

    folders = {}
    for key in ("report", "site"):
        folders[key] = f"lmperf-{key}" if is_foreign(Path(key)) else key
        if is_foreign(Path(folders[key])):
            raise UserError(f"{key} and {folders[key]} are in use; move one of them")
    return folders


def _config(given: Mapping[str, str], folders: Mapping[str, str]) -> str:
    """The text of a valid configuration with these entries, by kind, and folders, by key."""
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
    others = "".join(f"{key}: {name}\n" for key, name in folders.items() if name != key)
    return scaffold("config.yaml").substitute(
        folders=others or _FOLDERS, implementations=lines or _EXAMPLE
    )


def _ci(folders: Mapping[str, str]) -> str:
    """The file for continuous integration of lmperf itself, with another command that installs."""
    text = (workflow.FOLDER / CI).read_text(encoding="utf-8")
    text = text.replace("report/", f"{folders['report']}/")
    text = text.replace("path: site\n", f"path: {folders['site']}\n")
    package = f"lmperf=={version_of('lmperf')}"
    return re.sub(r"(?m)^( +run:) pip install .*$", rf"\1 pip install {package}", text)
