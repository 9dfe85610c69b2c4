"""From where pip installs lmperf, which is on no index, and with which torch it measures."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from lmperf.errors import UserError, shown

_PROJECT = Path("pyproject.toml")
_NEWER = range(100)  # minor versions of torch that a repository may ask for


def requirement(given: str | None) -> str:
    """Return lmperf as pip installs it, without extras; "" if no address is known.

    given: a Git address, a wheel in this repository or one on the web; None: from where the lmperf
        that runs was installed, if that was such an address.

    Raises:
        UserError: `given` is none of these.
    """
    if given is None:
        address = _installed_from()
        return f"lmperf @ {address}" if address else ""
    if re.match(r"git\+(https|ssh)://", given) or re.match(r"https://\S+\.whl$", given):
        return f"lmperf @ {given}"
    path = Path(given)
    if path.suffix == ".whl" and not path.is_absolute() and path.is_file():
        return f"./{path}"
    raise UserError(
        f"--install is {shown(given)}; it must be a Git address (git+https://...), or a wheel: a"
        " file in this folder, or https://....whl"
    )


def _installed_from() -> str:
    """The address on the web from which pip installed lmperf; "" if it was none."""
    try:
        origin = json.loads(distribution("lmperf").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return ""
    address, vcs = origin.get("url", ""), origin.get("vcs_info")
    if not re.match(r"(https|ssh)://", address):
        return ""
    return f"{vcs['vcs']}+{address}@{vcs['commit_id']}" if vcs else address


def torch_words() -> str:
    """That this repository asks for a torch with which lmperf cannot measure; "" if it does not."""
    ours = next(filter(None, map(_of_torch, _requirements_of_lmperf())), None)
    theirs = next(filter(None, map(_of_torch, _dependencies())), None)
    if ours is None or theirs is None or theirs.url:
        return ""
    versions = [f"{major}.{minor}.0" for major in (2, 3) for minor in _NEWER]
    if any(version in ours.specifier and version in theirs.specifier for version in versions):
        return ""
    return (
        f"{_PROJECT} asks for torch{theirs.specifier}, and lmperf measures with"
        f" torch{ours.specifier}: change that there, or in an environment of its own, install"
        " lmperf[measure] and then this repository by pip install --no-deps -e ."
    )


def _requirements_of_lmperf() -> Iterable[str]:
    try:
        return distribution("lmperf").requires or []
    except PackageNotFoundError:
        return []


def _dependencies() -> Iterable[str]:
    """The dependencies of the project in the current folder."""
    try:
        return tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    except (FileNotFoundError, KeyError, TypeError):
        return []
    except (OSError, ValueError) as error:
        raise UserError(f"{_PROJECT}: not valid TOML: {error}") from None


def _of_torch(line: str) -> Requirement | None:
    """The requirement if it is one of torch."""
    try:
        parsed = Requirement(line)
    except InvalidRequirement:
        return None
    return parsed if parsed.name.lower() == "torch" else None
