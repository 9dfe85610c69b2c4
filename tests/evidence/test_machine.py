"""Tests of the commit that is recorded in rows, of the slug of a machine, and of its links."""

import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from repository import commit, git

from lmperf.config import is_slug
from lmperf.evidence import machine
from lmperf.evidence.machine import commit_facts


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A Git repository without changes, with one Python file in the lmperf package."""
    monkeypatch.delenv("LMPERF_COMMIT", raising=False)
    for key in [key for key in os.environ if key.startswith("GIT_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    package = tmp_path / "src/lmperf"
    package.mkdir(parents=True)
    (package / "clock.py").write_text("x = 1\n")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n__pycache__/\nreport/\n")
    monkeypatch.setattr(machine, "_PACKAGE", package)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        *(("src/lmperf/new.py", True), ("src/lmperf/benchmarks/new ü.py", True)),
        *(("src/lmperf/clock.py", True), ("src/lmperf/__pycache__/clock.pyc", False)),
        *(("report/here/report.md", False), ("notes.txt", False), ("ignored.py", False)),
        ("config/config.yaml", False),
    ],
)
def test_changed_or_untracked_code_makes_commit_dirty(checkout, name, dirty):
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 2\n")
    known = git(checkout, "rev-parse", "HEAD")
    assert commit_facts(checkout) == ({"commit": known, "dirty": dirty}, "")


@pytest.fixture
def repository(checkout, tmp_path_factory):
    """A user's repository beside the checkout of lmperf, with one committed module."""
    root = tmp_path_factory.mktemp("repository")
    (root / "mine.py").write_text("x = 1\n")
    (root / ".gitignore").write_text(".venv/\n")
    git(root, "init", "-q")
    commit(root)
    return root


def test_commit_is_that_of_the_users_repository(checkout, repository):
    (checkout / "src/lmperf/clock.py").write_text("x = 2\n")
    known = git(repository, "rev-parse", "HEAD")
    assert commit_facts(repository) == ({"commit": known, "dirty": False}, "")


def test_other_folders_without_code_can_be_named(repository):
    page = repository / "lmperf-report/report.md"
    page.parent.mkdir()
    page.write_text("# A page\n")
    clean = {"commit": commit(repository), "dirty": False}
    page.write_text("# Another\n")
    assert commit_facts(repository) == ({**clean, "dirty": True}, "")
    assert commit_facts(repository, ("config", "lmperf-report")) == (clean, "")


def test_folder_of_a_larger_repository_counts_alone(repository):
    folder = repository / "a2"
    for name in ("mine.py", "config/config.yaml", "report/report.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    clean = {"commit": commit(repository), "dirty": False}
    for path in (
        repository / "mine.py",
        folder / "config/config.yaml",
        folder / "report/report.md",
    ):
        path.write_text("x = 2\n")
    assert commit_facts(folder) == (clean, "")
    (folder / "mine.py").write_text("x = 2\n")
    assert commit_facts(folder) == ({**clean, "dirty": True}, "")


def test_commit_outside_git_is_that_of_lmperf(checkout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    known = git(checkout, "rev-parse", "HEAD")
    assert commit_facts(folder) == ({"commit": known, "dirty": False}, "")


def test_variables_of_a_hook_do_not_choose_the_repository(checkout, repository, monkeypatch):
    monkeypatch.setattr(machine, "version_of", lambda name: "1.2")
    known, facts = machine.lmperf_version(repository), commit_facts(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / "no_index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    assert machine.lmperf_version(repository) == known != "1.2"
    assert commit_facts(repository) == facts


def test_version_names_the_commit_of_another_checkout(checkout, repository, monkeypatch):
    monkeypatch.setattr(machine, "version_of", lambda name: "1.2" if name == "lmperf" else None)
    assert machine.lmperf_version(checkout) == "1.2"
    found = f"1.2 ({git(checkout, 'rev-parse', 'HEAD')[:12]})"
    assert machine.lmperf_version(repository) == found
    (checkout / "src/lmperf/clock.py").write_text("x = 2\n")
    monkeypatch.setenv("LMPERF_COMMIT", "a" * 40)  # of the code that is measured
    assert machine.lmperf_version(repository) == f"{found[:-1]}-dirty)"
    monkeypatch.setattr(machine, "_PACKAGE", repository / ".venv/lib/lmperf")
    assert machine.lmperf_version(repository) == "1.2"


def test_commit_is_unknown_if_git_fails_and_its_message_says_why(checkout, monkeypatch):
    def why():
        facts, problem = commit_facts(checkout)
        assert facts == {"commit": None, "dirty": None}
        return problem

    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(checkout))
        assert why() == "git cannot be run: No such file or directory"
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        assert "dubious ownership" in why()
    (checkout / ".git/index").write_bytes(b"damaged")
    assert "index file" in why()
    shutil.rmtree(checkout / ".git")
    assert "not a git repository" in why()
    git(checkout, "init", "-q")
    assert "does not have any commits yet" in why()


def test_lmperf_commit_variable_overrides_git(checkout, monkeypatch):
    monkeypatch.setenv("LMPERF_COMMIT", "a" * 40)
    assert commit_facts(checkout) == ({"commit": "a" * 40, "dirty": None}, "")


@pytest.mark.parametrize(
    ("kind", "facts", "slug"),
    [
        ("cpu", {"device": "Intel(R) Xeon(R) CPU @ 2.20GHz"}, "cpu-intel-xeon-cpu-2-20ghz"),
        ("cuda", {"device": "NVIDIA H200", "devices": 2}, "nvidia-h200-x2"),
        ("cuda", {"device": "NVIDIA " + "a" * 60, "devices": 2}, "nvidia-" + "a" * 54 + "-x2"),
        ("cuda", {"device": "画像"}, "unnamed"),
    ],
)
def test_slug_of_a_machine_has_the_words_of_its_device(monkeypatch, kind, facts, slug):
    monkeypatch.setattr(machine, "accelerator", lambda: kind)
    monkeypatch.setattr(machine, "_cpu_model", lambda: facts["device"])
    monkeypatch.setattr(machine, "_nvidia_facts", lambda: facts)
    found = machine.detect.__wrapped__().slug
    assert found == slug and is_slug(found)


def test_cpu_quota_is_a_fact_of_another_environment(monkeypatch):
    def detected(usable):
        monkeypatch.setattr(machine.processors, "usable", lambda: usable)
        return machine.detect.__wrapped__("cpu")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine.processors, "affinity", lambda: 2)
    whole, half = detected(2.0), detected(0.5)
    assert "cores_of_host" not in whole.facts and (
        whole.facts["cores"],
        whole.facts["threads"],
    ) == (2, 2)
    assert (half.facts["cores"], half.facts["cores_of_host"], half.facts["threads"]) == (0.5, 2, 1)
    assert half.facts["settings"]["CPU quota"] == "0.5"
    assert detected(1.5).environment not in (whole.environment, half.environment)


@pytest.mark.parametrize(
    ("name", "flags", "shown"),
    [
        ("AMD EPYC", "fma avx2 avx512f avx512_bf16", "AMD EPYC, AVX-512 BF16"),
        ("AMD EPYC", "fma avx2", "AMD EPYC, AVX2"),
        ("AMD EPYC", "fma", "AMD EPYC"),
        ("AMD EPYC 9654 96-Core Processor", "fma avx2", "AMD EPYC 9654 96-Core Processor"),
    ],
)
def test_cpu_without_a_number_is_named_by_its_instructions(monkeypatch, name, flags, shown):
    text = f"processor : 0\nmodel name : {name}\nflags : {flags}\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda path: text)
    assert machine._cpu_model.__wrapped__() == shown


class NVMLError(Exception):
    """What NVML raises for a link that a device does not have."""


def nvml(remote, links=4):
    """A library of NVML with so many active links a device, each to a `remote` device."""

    def state(handle, link):
        if link >= links:
            raise NVMLError
        return link > 0  # the first one is inactive

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 2 if remote == "switch" else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda handle, link: SimpleNamespace(busId=remote),
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=handle),
    )


@pytest.mark.parametrize(
    ("library", "link"),
    [
        (nvml("switch"), "NV3"),
        (nvml("elsewhere"), "host"),
        (nvml("switch", links=0), "host"),
    ],
)
def test_links_of_gpus_are_nvlinks_or_the_way_through_the_host(library, link):
    assert machine._links(library, ["a", "b"]) == {"0-1": link}
    assert machine._links(library, ["a"]) == {}


@pytest.mark.parametrize(
    ("visible", "device"),
    [(None, "GPU-b"), ("1", "GPU-c"), ("GPU-b", "GPU-b"), ("MIG-d", "MIG-d"), ("2", None)],
)
def test_visible_gpus_do_not_depend_on_those_that_cannot_be_opened(monkeypatch, visible, device):
    def opened(number):
        if number == 0:  # lost, or given to another job of the machine
            raise NVMLError
        return ["GPU-a", "GPU-b", "GPU-c"][number]

    library = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=opened,
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: handle,
        nvmlSystemGetDriverVersion=lambda: "570.1",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=2**30),
        nvmlDeviceGetMaxClockInfo=lambda handle, which: 1980,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
        nvmlDeviceGetNvLinkState=lambda handle, link: False,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = machine._nvidia_facts.__wrapped__()
    assert found.get("device") == device
    assert found.get("devices") == (2 if visible is None else None)


def test_settings_of_nccl_are_facts_of_several_gpus(monkeypatch):
    monkeypatch.setattr(machine, "accelerator", lambda: "cuda")
    for name, value in {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"}.items():
        monkeypatch.setenv(name, value)
    for devices in (1, 2):
        facts = {"device": "NVIDIA H200", "devices": devices}
        monkeypatch.setattr(machine, "_nvidia_facts", lambda facts=facts: facts)
        found = machine.detect.__wrapped__().facts["settings"]
        assert found["OMP_NUM_THREADS"] == "3" and "NCCL_DEBUG" not in found
        assert found.get("NCCL_ALGO") == ("Tree" if devices == 2 else None)
