"""Tests that the pinned environments satisfy pyproject.toml and that every pin has hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ENVS = ROOT / "envs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TOOLS = (ENVS / "release.in").read_text().splitlines()
WANTED = {
    "report": PROJECT["dependencies"],
    "dev": [*PROJECT["dependencies"], *EXTRAS["dev"]],
    "release": [line for line in TOOLS if not line.startswith("#")],
}


def lines_of(name):
    """Return the lines of a requirements file without comments, continuation lines joined."""
    text = (ENVS / f"{name}.txt").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def pins_of(name):
    """Return package -> pinned version."""
    found = [re.match(r"([\w.-]+)==([\w.+!]+)", line) for line in lines_of(name)]
    return {canonicalize_name(pin[1]): pin[2] for pin in found}


def assert_pinned(wanted, pins):
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not pinned: make lock"
        assert requirement.specifier.contains(version), f"{requirement}, but {version} is pinned"


@pytest.mark.parametrize("name", WANTED)
def test_every_dependency_is_pinned(name):
    assert_pinned(WANTED[name], pins_of(name))


def test_packages_for_measuring_are_pinned():
    assert set(pins_of("measure")) == {"torch", "triton"}
    assert_pinned(EXTRAS["measure"], pins_of("dev") | pins_of("measure"))


@pytest.mark.parametrize("name", WANTED)
def test_every_pin_has_hashes_and_no_url(name):
    pin = r"[\w.-]+==[\w.+!]+( ; [^\\]+?)?(\s+--hash=sha256:[0-9a-f]{64})+"
    wrong = [line for line in lines_of(name) if not re.fullmatch(pin, line.rstrip())]
    assert not wrong
    assert "://" not in (ENVS / f"{name}.txt").read_text()


def test_dev_environment_holds_no_cuda_packages():
    cuda = [p for p in pins_of("dev") if p.startswith(("cuda-", "nvidia-", "torch", "triton"))]
    assert cuda == ["nvidia-ml-py"]
