"""Tests of the machine's lock, which lets one process measure at a time, whoever its user."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

from lmperf.errors import UserError
from lmperf.measuring.gpus import visible_gpus
from lmperf.measuring.lock import MACHINE, MachineLock, machine_lock


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("LMPERF_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


def never(words):
    raise AssertionError(words)


def is_free(path):
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_path_of_lock_does_not_depend_on_tmpdir(monkeypatch, tmp_path):
    monkeypatch.delenv("LMPERF_LOCK")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert str(MACHINE.path) == "/tmp/lmperf.lock"


def test_every_user_may_open_the_lock_despite_umask(path):
    before = os.umask(0o077)
    try:
        with machine_lock(never):
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_process_can_take_the_lock_several_times(path):
    with machine_lock(never):
        with machine_lock(never) as lock:
            assert not is_free(path)
        assert not is_free(path) and not any(map(os.get_inheritable, lock.filenos()))
    assert is_free(path)


def test_worker_with_the_open_lock_file_keeps_it_locked(path):
    with machine_lock(never) as lock:
        (inherited,) = map(os.dup, lock.filenos())
    assert not is_free(path)
    os.close(inherited)
    assert is_free(path)


def test_read_only_lock_of_another_user_can_be_taken(path):
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    path.chmod(0o444)
    with machine_lock(never):
        assert not is_free(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_can_take_the_lock_after_us(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:  # other users cannot open pytest's tmp_path
        os.chmod(folder, 0o1777)
        monkeypatch.setenv("LMPERF_LOCK", f"{folder}/lock")
        with machine_lock(never):
            pass
        child = os.fork()
        if child == 0:
            os.setuid(12345)
            try:
                MachineLock().take(never)
            except UserError:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.process
def test_waiting_process_names_the_lock_holder_once(path):
    code = (
        "import sys; from lmperf.measuring.lock import machine_lock\n"
        "with machine_lock(print): print('has it', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, "other-run"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"has it\n"
    said = []

    def waiting(words):
        said.append(words)
        other.stdin.close()

    with machine_lock(waiting):
        assert other.wait() == 0
    other.stdout.close()
    (words,) = said
    assert words.startswith("waiting for another measurement on this machine")
    if os.path.exists("/proc/locks"):
        assert f"process {other.pid}, " in words and words.endswith("...")
        assert "\n" not in words


def test_lock_file_deleted_while_waiting_is_created_again(path):
    path.touch()
    held = open(path)  # noqa: SIM115 - closed once it is waited for
    fcntl.flock(held, fcntl.LOCK_EX)

    def waiting(words):
        path.unlink()
        path.touch()
        held.close()

    with machine_lock(waiting):
        assert not is_free(path)


def test_interrupt_while_waiting_takes_no_lock(path):
    def waiting(words):
        raise KeyboardInterrupt

    with open(path, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        lock = MachineLock()
        with pytest.raises(KeyboardInterrupt):
            lock.take(waiting)
    lock.take(never)
    lock.release()


def fifo(path):
    os.mkfifo(path)


def link(path):
    path.symlink_to(path.with_name("elsewhere"))


def folder(path):
    path.mkdir()


@pytest.mark.parametrize("put", [folder, link, fifo])
def test_lock_path_that_is_no_file_is_a_user_error(path, put):
    put(path)
    refused(path)
    assert not path.with_name("elsewhere").exists()


def test_missing_lock_folder_is_a_user_error(path, monkeypatch):
    monkeypatch.setenv("LMPERF_LOCK", str(path / "deeper"))
    refused(path / "deeper")


@pytest.mark.parametrize("error", [PermissionError(13, "No"), OSError(30, "Read-only")])
def test_unwritable_lock_folder_is_a_user_error(path, monkeypatch, error):
    real = os.open

    def refusing(file, flags, *rest, **more):
        if flags & os.O_CREAT:
            raise error
        return real(file, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    refused(path)


def refused(path):
    got = []

    def attempt():
        try:
            MachineLock().take(never)
        except UserError as error:
            got.append(str(error))

    thread = threading.Thread(target=attempt, daemon=True)  # the process must not wait, either
    thread.start()
    thread.join(20)
    (words,) = got
    assert str(path) in words and "LMPERF_LOCK" in words and "\n" not in words


@pytest.fixture
def gpus(path, monkeypatch):
    """Pretend that the machine has three GPUs."""
    monkeypatch.setenv("LMPERF_PRETENDED_GPUS", "3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return [f"pretended-{number}" for number in range(3)]


def taken(number=None):
    lock = MachineLock()
    lock.take(never, number)
    return lock


class Waited(Exception):
    """Raised in place of waiting."""


def wait(words):
    raise Waited(words)


def test_jobs_side_by_side_take_gpus_of_their_own(gpus, path):
    locks = [taken(1) for _ in gpus]
    assert [lock.gpus for lock in locks] == [[gpu] for gpu in gpus]
    assert is_free(path) and not any(is_free(lock.path_of(*lock.gpus)) for lock in locks)
    with pytest.raises(Waited, match="waiting for 1 of 3 GPUs"):
        MachineLock().take(wait, 1)
    locks[1].release()
    assert taken(1).gpus == [gpus[1]]


def test_ranked_job_waits_for_all_its_gpus_before_it_starts(gpus):
    first, ranked, said = taken(1), MachineLock(), []

    def waiting(words):
        said.append(words)
        with pytest.raises(Waited, match="waiting for another measurement"):
            MachineLock().take(wait, 1)  # no later job takes what it waits for
        first.release()

    ranked.take(waiting, 3)
    assert ranked.gpus == gpus and said == ["waiting for 1 of 3 GPUs"]


def test_whole_machine_and_single_gpus_exclude_each_other(gpus, path):
    whole = taken()
    with pytest.raises(Waited):
        MachineLock().take(wait, 1)
    whole.release()
    one = taken(1)
    with pytest.raises(Waited):
        MachineLock().take(wait)
    assert is_free(path), "who gives up holds nothing"
    one.release()
    taken().release()


def test_more_gpus_than_visible_is_a_user_error(gpus):
    with pytest.raises(UserError, match="needs 4 GPUs; this process may use 3"):
        MachineLock().take(never, 4)
    taken().release()


def test_machine_without_gpus_is_taken_whole(path):
    lock = taken(1)
    assert lock.gpus == [] and not is_free(path)
    with lock.visible():
        assert "CUDA_VISIBLE_DEVICES" not in os.environ or not os.environ["CUDA_VISIBLE_DEVICES"]
    lock.release()


def test_workers_see_only_the_gpus_that_were_taken(gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    lock = taken(2)
    with lock.visible():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "pretended-0,pretended-1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert len(lock.filenos()) == 2


@pytest.mark.parametrize(
    "visible, usable",
    [(None, "ab"), ("1,0", "ba"), ("GPU-b", "b"), ("", ""), ("0,7,1", "a"), ("GPU-", "")],
)
def test_visible_gpus_are_those_that_cuda_would_use(monkeypatch, visible, usable):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus(["GPU-a", "GPU-b"]) == [f"GPU-{one}" for one in usable]
