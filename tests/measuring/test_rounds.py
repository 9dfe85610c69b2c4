"""The parts that need no process: rounds, stretches, weights, sensors, progress, lock."""

import multiprocessing
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmperf.errors import UserError
from lmperf.measuring import case_steps, lock, processors, sensors
from lmperf.measuring.lock import locked
from lmperf.measuring.progress import Progress, duration
from lmperf.measuring.ranks import Alone
from lmperf.measuring.rounds import LOOKS, Pace, in_turn, pace_of, stretches, visit
from lmperf.measuring.supervisor import empty_cache

PACE = Pace(20, 6, 0.9)


class Machine:
    """Entries that take so many ms for a call; `None` fails."""

    def __init__(self, **ms):
        self.ms, self.runs, self.now = ms, [], 0.0

    def run(self, entry, calls):
        self.runs.append((entry, calls))
        if self.ms[entry] is None:
            return None
        each = self.ms[entry] + 1e-6 * len(self.runs)
        self.now += each * calls / 1e3
        return [each] * calls, each * calls


def test_rounds_stop_when_every_pair_is_decided():
    machine = Machine(a=1.0, b=2.0)
    found = in_turn(["a", "b"], machine.run, PACE, lambda: machine.now)
    columns = found["a"].columns
    assert columns["rounds_ms"].count(";") == LOOKS[0] - 1
    assert columns["n"] == 5 * LOOKS[0]  # calls of just over 1 ms in slices of 6 ms
    assert columns["low_ms"] <= columns["median_ms"] <= columns["high_ms"] < 1.01


@pytest.mark.parametrize("cap_s, least, most", [(0.1, 6, 12), (9.0, 20, 20)])
def test_equal_entries_go_on_until_the_cap_or_the_last_look(cap_s, least, most):
    machine = Machine(a=1.0, b=1.0)

    def noisy(entry, calls):
        times, total = machine.run(entry, calls)
        factor = (1.0, 1.04, 0.97, 1.02, 0.99)[len(machine.runs) % 5]
        return [ms * factor for ms in times], total

    found = in_turn(["a", "b"], noisy, Pace(20, 6, cap_s), lambda: machine.now)
    assert least <= len(found["a"].parts) <= most


@pytest.mark.parametrize("ms, lead, timed", [(10.0, 150, 315), (100.0, 15, 32), (5000.0, 1, 12)])
def test_a_visit_has_a_lead_in_and_lasts_for_time_and_steps(ms, lead, timed):
    machine = Machine(a=ms)
    times = visit("a", machine.run, pace_of("step", "cuda"))
    *before, last = [calls for _, calls in machine.runs]
    assert sum(before) == pytest.approx(lead, abs=1)
    assert last == len(times) == pytest.approx(timed, abs=1)


def test_a_share_of_a_visit_has_that_share_of_its_time():
    machine = Machine(a=10.0)
    times = visit("a", machine.run, pace_of("step", "cuda", share=0.1))
    assert sum(calls for _, calls in machine.runs[:-1]) == 15 and len(times) == 32


def test_a_cpu_and_a_benchmark_of_long_steps_have_short_visits():
    for pace, steps in ((pace_of("step", "cpu"), 3), (pace_of("step", "cuda", steps=3), 3)):
        machine = Machine(a=11_000.0)
        visit("a", machine.run, pace)
        assert [calls for _, calls in machine.runs] == [1, steps]


def test_low_and_high_are_the_least_and_greatest_of_ten_stretches():
    visits = [[1.0] * 10 + [2.0] * 10, [1.5] * 20]
    columns = stretches(visits).columns
    assert columns["rounds_ms"].count(";") == 9 and columns["n"] == 40
    assert (columns["low_ms"], columns["median_ms"], columns["high_ms"]) == (1.0, 1.5, 2.0)
    assert stretches([[1.0, 2.0, 3.0]]).parts == [1.0, 2.0, 3.0]  # fewer steps than stretches


def _spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.mark.slow
def test_load_counts_others_but_neither_a_process_nor_its_children():
    child = multiprocessing.get_context("fork").Process(target=_spin, args=[5])
    child.start()
    of_both, of_child = sensors.Load(os.getpid()), sensors.Load(child.pid)
    began, used = time.monotonic(), time.process_time()
    _spin(0.5)
    shares = of_both.share(), of_child.share()
    used = (time.process_time() - used) / (time.monotonic() - began) / os.cpu_count()
    child.kill()
    child.join()
    # For the child, this process is another one.
    assert shares[1] == pytest.approx(min(1.0, shares[0] + used), abs=0.1)


@pytest.mark.parametrize(
    ("cores", "quota", "busy", "share"),
    [
        ({0, 1}, 2.0, (0.5, 0.0), 0.25),
        ({0}, 1.0, (0.5, 1.0), 0.5),
        ({0, 1}, 1.0, (1.0, 0.0), 0.0),
        ({0, 1}, 1.0, (1.0, 0.5), 0.5),
        ({0, 1}, 2.0, None, 1.0),
    ],
    ids=["both", "the one that may be used", "beside a quota", "above a quota", "unknown"],
)
def test_load_of_a_quick_call_waits_until_it_is_known(monkeypatch, cores, quota, busy, share):
    now = [7.0]

    def times(percpu):
        if busy is None:
            raise FileNotFoundError("/proc/stat")
        return [SimpleNamespace(user=one * round(now[0] - 7, 1)) for one in busy]  # in ticks

    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )
    monkeypatch.setattr(sensors, "time", clock)
    monkeypatch.setattr(sensors.psutil, "cpu_times", times)
    monkeypatch.setattr(sensors, "family", lambda _: [])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores, raising=False)
    monkeypatch.setattr(processors, "_quotas", lambda: iter([quota]))
    others = sensors.Load(1)
    now[0] += 0.02
    assert others.share() == pytest.approx(share)


def test_compile_cache_is_a_new_folder_in_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine" / "inductor"))
    with empty_cache() as one, empty_cache() as other:
        assert one != other and Path(one).parent == tmp_path / "mine" / "inductor"
        assert not [*Path(one).iterdir()]
    (tmp_path / "mine" / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine" / "file"))
    with pytest.raises(UserError, match="set TORCHINDUCTOR_CACHE_DIR or"), empty_cache():
        pass


def test_progress_tells_the_time_left_from_its_own_pace():
    lines, now = [], [0.0]
    shown = Progress("x", 10, lines.append, lambda: now[0])
    now[0] = 20.0
    shown.step("timing")
    shown.done(4, "4 ok")
    now[0] = 21.0
    shown.step("not said")
    now[0] = 600.0
    shown.done(5, "5 ok")
    assert lines == [
        "[x] 10 cases to measure",
        "[x] 0 of 10 cases, 20 s: timing",
        "[x] 4 of 10 cases, 20 s, about 30 s left: 4 ok",
        "[x] 9 of 10 cases, 10 min, about 1 min left: 5 ok",
    ]
    assert [duration(s) for s in (59, 130, 3900)] == ["59 s", "2 min 10 s", "1 h 5 min"]


def test_devices_are_locked_all_or_none(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("lmperf.measuring.gpus.all_gpus", lambda: ["GPU-0", "GPU-1", "GPU-2"])
    monkeypatch.setattr(lock, "_POLL_S", 0)

    class Waits(Exception):
        pass

    def say(line):
        assert "waiting for another measurement" in line and str(os.getpid()) in line
        raise Waits

    with locked("cuda", 2, pytest.fail) as (held, gpus):
        assert len(held) == 2 and gpus == ["GPU-0", "GPU-1"]
        with locked("cuda", 1, pytest.fail) as (_, one):
            assert one == ["GPU-2"]
        with pytest.raises(Waits), locked("cuda", 2, say):
            pass
        with locked("cuda", 1, pytest.fail):  # the third is free again
            pass
    with locked("cpu", 1, pytest.fail), pytest.raises(Waits), locked("cpu", 1, say):
        pass
    with locked("cuda", 2, pytest.fail, among=["GPU-2", "GPU-1"]) as (_, gpus):
        assert gpus == ["GPU-2", "GPU-1"]
    with pytest.raises(UserError, match="needs 4 GPUs; this process may use 3"):
        locked("cuda", 4, pytest.fail).__enter__()


def test_an_unusable_lock_file_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "link", tmp_path / "nowhere" / "lock"):
        monkeypatch.setenv("LMPERF_LOCK", str(path))
        with pytest.raises(UserError, match="set LMPERF_LOCK to a file"):
            locked("cpu", 1, pytest.fail).__enter__()


@pytest.mark.parametrize(
    ("device", "loads", "takes", "kept"),
    [
        ("cpu", [0.05], ["first"], (0.05, "first")),
        ("cpu", [0.4, 0.3], ["first", "second"], (0.3, "second")),
        ("cpu", [0.3, 0.4], ["first", "second"], (0.3, "first")),
        ("cpu", [0.4], [None], (0.4, None)),
        ("cuda", [0.4], ["first"], (0.4, "first")),
    ],
)
def test_take_beside_others_is_repeated_and_the_quieter_kept(
    monkeypatch, device, loads, takes, kept
):
    monkeypatch.setattr(case_steps, "Load", lambda _: SimpleNamespace(share=lambda: loads.pop(0)))
    here = SimpleNamespace(device=device, _pid=1, team=Alone(), tell=lambda note: None)
    assert case_steps.CaseSteps.quieter(here, lambda: takes.pop(0)) == kept
    assert not takes and not loads
