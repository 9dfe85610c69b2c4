"""`lmperf init`: set up the report in a repository that has its own kernels or models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lmperf import workflow
from lmperf.benchmarks import load, stems
from lmperf.commands.installing import requirement, torch_words
from lmperf.commands.options import CONFIG, say, scaffold
from lmperf.config.read import config_of
from lmperf.errors import UserError
from lmperf.machine.repository import git_text, is_in_git
from lmperf.own.check import check_names
from lmperf.own.course import Part, found_in
from lmperf.own.kinds import KINDS
from lmperf.reporting.files import is_foreign, write_files

CI = Path(".github/workflows/report.yml")
PROFILE = Path("profiles/default/profile.yaml")
# The files that --templates writes into templates/.
_OWN = ("course.md.j2", "end_to_end.md.j2", "our_question.md.j2")
_PROBLEM = re.compile(r"^\{% block (\w+) %\}\{% endblock %\}$", re.MULTILINE)

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


def _entry_options(command: Callable) -> Callable:
    """A decorator that adds an option for each kind of implementation."""
    for kind in reversed(KINDS):
        option = f"--{kind.replace('_', '-')}"
        add = click.option(option, kind, metavar="MODULE:NAME", help=f"Your {option[2:]}.")
        command = add(command)
    return command


@click.command(short_help="Set up the report in your own repository.")
@_entry_options
@click.option(
    "--course",
    "adapters",
    metavar="MODULE",
    help="Your solution of CS336, assignment 2, by the module of its adapters: tests.adapters.",
)
@click.option(
    "--install",
    metavar="ADDRESS",
    help="The Git address or the wheel from which CI installs lmperf; as a default, that from"
    " which this lmperf was installed.",
)
@click.option("--templates", is_flag=True, help="Write templates for words of your own instead.")
def init(templates: bool, adapters: str | None, install: str | None, **given: str | None):
    """Write the files with which this folder of a Git repository measures and reports its own
    implementations: a Snakefile that includes the workflow of lmperf, Snakemake's settings for it,
    a configuration, .gitignore, .gitattributes, and at the top of the repository a file for
    continuous integration. Existing files stay as they are; where report/ or site/ has some, the
    configuration names another folder.

    With --course, the configuration has what the adapters of a solution return and wrap, and the
    model of its repository. What was found, and what became of it, is printed.

    With --templates, write templates for you to edit: the skeleton of a hand-in, which has a block
    for each problem of the course, one that adds a note to a page, and one that is a page of its
    own.

    \b
    Examples:
      lmperf init --attention my_package.attention:FlashAttention
      lmperf init --course tests.adapters
      lmperf init --templates
    """
    if templates:
        _write(own_templates())
        say("next: edit them, then lmperf report")
        return
    if not is_in_git(Path()):
        raise UserError(f"{Path.cwd()} is in no Git repository; run git init there")
    if words := torch_words():
        say(words)
    is_top, folders, lmperf = Path(".git").exists(), _folders(), requirement(install)
    entries = _entries({kind: entry for kind, entry in given.items() if entry})
    for part in found_in(adapters, _python_files()) if adapters else ():
        entries = _with_part(entries, part, given)
    if adapters and not entries:
        raise UserError("nothing is written, since all is left out; mend that and run init again")
    files = {
        Path("Snakefile"): scaffold("Snakefile.txt").template,
        CONFIG: _config(entries, folders),
        PROFILE: (workflow.FOLDER / PROFILE).read_text(encoding="utf-8"),
        **({CI: _ci(folders, lmperf)} if is_top and lmperf else {}),
    }
    for path, wanted in _FOR_GIT.items():
        lines = [line.format(**folders) for line in wanted]
        if not path.exists():
            files[path] = "\n".join(lines) + "\n"
            continue
        present = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if lacking := [line for line in lines if line not in present]:
            say(f"{path} exists and stays as it is; add these lines to it: {' '.join(lacking)}")
    _write(files)
    for key in (key for key, name in folders.items() if name != key):
        say(f"{key} is in use, and stays as it is: {CONFIG} names {folders[key]} instead")
    if not is_top:
        say(f"not written: {CI}, which works at the top of a repository only")
    elif not lmperf:
        say(
            f"not written: {CI}, since this lmperf was installed from no address on the web; name"
            " one by --install: git+https://..., or a wheel in this folder"
        )
    say(f"next: snakemake --cores 1 {folders['report']}/report.md --config preset=quick")


def own_templates() -> dict[Path, str]:
    """The templates that --templates writes; the hand-in has the blocks that lmperf's page has."""
    page = (workflow.TEMPLATES / "course.md.j2").read_text(encoding="utf-8")
    blocks = "\n".join(f"{{% block {name} %}}\n{{% endblock %}}" for name in _PROBLEM.findall(page))
    texts = {name: scaffold(name).substitute(blocks=blocks) for name in _OWN}
    return {Path("templates") / name: text for name, text in texts.items()}


def _python_files() -> list[Path]:
    """The Python files below this folder, tracked or not, but not those that Git ignores."""
    listed = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py")
    return [Path(name) for name in git_text(Path(), *listed).split("\0") if name]


def _write(files: Mapping[Path, str]) -> None:
    write_files(files, "init overwrites nothing; to have it written anew, move it away")
    print(*files, sep="\n")


def _folders() -> dict[str, str]:
    """Key -> folder that lmperf may write to: another one where the default has files already."""
    folders = {}
    for key in ("report", "site"):
        folders[key] = f"lmperf-{key}" if is_foreign(Path(key)) else key
        if is_foreign(Path(folders[key])):
            raise UserError(f"{key} and {folders[key]} are in use; move one of them")
    return folders


# Stem -> name -> value in the configuration.
_Entries = dict[str, dict[str, Any]]


def _stems_of(kind: str) -> list[str]:
    """The benchmarks that measure a kind of implementation."""
    takes, measured = KINDS[kind].takes, KINDS[kind].measured
    return [*measured] or [stem for stem in stems() if load(stem).takes == takes]


def _entries(given: Mapping[str, str]) -> _Entries:
    """The implementations that options name, by kind."""
    entries: _Entries = {}
    for kind, entry in given.items():
        is_of_model = kind == "optimizer" and "model" in given
        value = {"use": entry, "model": KINDS["model"].name} if is_of_model else entry
        for stem in _stems_of(kind):
            entries.setdefault(stem, {})[KINDS[kind].name] = value
    return entries


def _with_part(entries: _Entries, part: Part, given: Mapping[str, str | None]) -> _Entries:
    """The entries with what was found in a course's repository; says what becomes of it."""
    fault = part.fault
    if not fault and given.get(part.kind):
        fault = f"--{part.kind.replace('_', '-')} names another one"
    if fault:
        say(f"{part.entry}: left out: {fault}")
        return entries
    if part.kind == "optimizer" and (model := _model_in(entries)):
        part = replace(part, options={"model": model})
    taking = _stems_of(part.kind)
    options = [f"{name} {_listed(values)}" for name, values in part.options.items()]
    more = "; ".join([*([part.use] if part.use else []), *options, *part.hooks])
    say(f"{part.entry}: {part.name} in {', '.join(taking)}{f' ({more})' if more else ''}")
    added = {stem: {**entries.get(stem, {}), part.name: part.configured} for stem in taking}
    return entries | added


def _model_in(entries: _Entries) -> str:
    """The name of the user's model, which an optimizer of the same solution steps; "" for none."""
    steps = entries.get("end_to_end", {})
    return next((name for name in ("my_model", "mine") if name in steps), "")


def _listed(values: Any) -> str:
    return ", ".join(map(str, values if isinstance(values, list) else [values]))


def _config(entries: _Entries, folders: Mapping[str, str]) -> str:
    """The text of a valid configuration with these entries, and folders by key."""
    config = config_of({}, CONFIG, {"implementations": entries})
    lines = ""
    for stem, custom in entries.items():
        check_names(load(stem, config.external(stem)))
        lines += f"\n  {stem}:"
        lines += "".join(f"\n    {name}: {_written(value)}" for name, value in custom.items())
    others = "".join(f"{key}: {name}\n" for key, name in folders.items() if name != key)
    return scaffold("config.yaml").substitute(
        folders=others or _FOLDERS, implementations=lines or _EXAMPLE
    )


def _written(value: Any) -> str:
    """A value of an implementation as YAML, on one line; PyYAML writes blocks and references."""
    if isinstance(value, str):
        return json.dumps(value)
    return f"{{ {', '.join(f'{key}: {json.dumps(part)}' for key, part in value.items())} }}"


def _ci(folders: Mapping[str, str], lmperf: str) -> str:
    """The file for continuous integration of lmperf itself, which installs this requirement."""
    text = (workflow.FOLDER / CI).read_text(encoding="utf-8")
    text = text.replace("report/", f"{folders['report']}/")
    text = text.replace("path: site\n", f"path: {folders['site']}\n")
    return re.sub(r"(?m)^( +run:) pip install .*$", rf'\1 pip install "{lmperf}"', text)
