"""Tests of the machine's state during a slice (short run of timed calls).

The state is the device's samples, the load of other processes, and throttling.
"""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from lmperf.measuring import host_load, sensors, state
from lmperf.measuring.host_load import HostLoad, Reading
from lmperf.measuring.sensors import Device, Devices, Sample, clock_reader, sensor
from lmperf.measuring.state import LOADED, Before, State, Watch, combine


def write_process(proc, pid, children=(), ticks=(0, 0, 0, 0)):
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(" ".join(map(str, children)))
    used = " ".join(map(str, ticks))
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {used} 20 0")


def write_stat(proc, *cores):
    lines = ["cpu 1 1 1 1 1 1 1 1 0 0"]
    lines += [f"cpu{i} {busy} 0 0 {idle} {wait} 0 0 0 0 0" for i, busy, idle, wait in cores]
    (proc / "stat").write_text("\n".join([*lines, "intr 5 6 7", "cpu9 1"]))


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(host_load, "_usable_cpus", lambda: frozenset({0, 1}))
    write_stat(tmp_path, (0, 5, 300, 100), (1, 5, 200, 0), (2, 5, 9000, 0))
    write_process(tmp_path, os.getpid(), [11], (100, 50, 0, 0))
    write_process(tmp_path, 11, [12], (10, 10, 400, 100))
    write_process(tmp_path, 12, [], (1, 1, 0, 0))
    write_process(tmp_path, 20, [21], (30, 0, 0, 0))
    write_process(tmp_path, 21, [], (40, 0, 0, 0))
    write_process(tmp_path, 99, [], (7777, 0, 0, 0))
    return tmp_path


def test_workers_and_their_descendants_count_as_ours(proc):
    host = HostLoad(lambda: [20], proc)
    reading = host.read()
    assert host.ours() == {os.getpid(), 11, 12, 20, 21} == set(reading.used)
    assert host.cores == 2
    assert reading.idle == pytest.approx(6.0)  # 300 + 100 + 200 ticks of a hundredth of a second
    assert reading.used[11] == (pytest.approx(0.2), pytest.approx(5.0))


def test_load_is_not_read_without_proc_counters(proc):
    (proc / "stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    assert HostLoad(proc=proc).read() is None
    assert HostLoad(proc=proc / "absent").read() is None


@pytest.mark.parametrize(
    ("idle", "used", "cores"),
    [
        (2.0, {1: (0.0, 0.0)}, 0.0),  # two cores idle for a second
        (1.0, {1: (1.0, 0.0)}, 0.0),  # one used by us
        (1.0, {1: (0.0, 0.0)}, 1.0),  # one used by another
        (0.0, {1: (1.0, 0.0)}, 1.0),  # one by each
        (0.0, {1: (0.5, 0.5)}, 1.0),  # ours, and an ended child of ours
        (2.5, {1: (0.0, 0.0)}, 0.0),  # rounding never gives a negative load
        (-1.0, {1: (0.0, 0.0)}, 2.0),
    ],
)
def test_other_load_is_busy_time_that_is_not_ours(proc, idle, used, cores):
    host = HostLoad(proc=proc)
    first, last = Reading(10.0, 5.0, {1: (0.0, 0.0)}), Reading(11.0, 5.0 + idle, used)
    assert host.others(first, last) == pytest.approx(cores)


def test_time_of_ended_process_is_not_other_load(proc):
    host = HostLoad(proc=proc)
    first = Reading(0.0, 0.0, {1: (3.0, 0.0), 2: (8.0, 0.0)})
    waited_for = Reading(1.0, 0.0, {1: (3.5, 8.5)})
    not_waited_for = Reading(1.0, 0.0, {1: (4.0, 0.0)})
    assert host.others(first, waited_for) == pytest.approx(1.0)
    assert host.others(first, not_waited_for) == pytest.approx(1.0)


BUSY = "import time\nwhile time.process_time() < {}: pass\n{}"


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc")
@pytest.mark.process
def test_child_counts_while_running_and_after_its_end():
    host = HostLoad()
    first = host.read()
    child = subprocess.Popen(
        [sys.executable, "-c", BUSY.format(0.1, "print(1, flush=True); input()")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    child.stdout.readline()
    during = host.read()
    child.communicate(b"\n")
    after = host.read()
    assert host_load._used_between(first.used, during.used) >= 0.1
    assert host_load._used_between(first.used, after.used) >= 0.08


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no /proc")
@pytest.mark.process
def test_busy_process_of_others_counts_as_other_load(monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", BUSY.format(60, "")])
    try:
        host = HostLoad()
        monkeypatch.setattr(host, "ours", lambda: {os.getpid()})
        watch = Watch("cpu", sensors.Processor(), host, list)
        before = watch.before()
    finally:
        child.kill()
        child.wait()
    assert before.state.loaded
    assert before.words.startswith("other processes use ")


class Host(HostLoad):
    """A fake host with two cores, of which other processes use `busy`."""

    def __init__(self):
        super().__init__()
        self.cores, self.busy, self.idle, self.last, self.reads = 2, 0.0, 0.0, Clock.now, 0

    def read(self):
        self.reads += 1
        self.idle += (Clock.now - self.last) * (2 - self.busy)
        self.last = Clock.now
        return Reading(Clock.now, self.idle, {})

    def ours(self):
        return set()


class Clock:
    now = 100.0


class Sensor(sensors.Processor):
    def __init__(self, samples=(), others=None):
        self.samples, self.others = list(samples), others

    def sample(self):
        return self.samples.pop(0) if self.samples else Sample()

    def other_processes(self, ours, workers):
        return self.others


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(state.time, "perf_counter", lambda: Clock.now)
    monkeypatch.setattr(Clock, "now", 100.0)
    return Clock


def run(watch, host, clock, seconds, busy):
    host.read()
    host.busy = busy
    watch.begin()
    clock.now += seconds
    return watch.end()


def test_short_slices_share_a_window_for_other_load(clock):
    host = Host()
    watch = Watch("cpu", Sensor(), host, list)
    quiet = [run(watch, host, clock, 0.03, 0.0) for _ in range(20)]
    assert quiet[0].other_load is None and not quiet[0].loaded  # too short to tell
    assert quiet[-1].other_load == pytest.approx(0.0)
    busy = [run(watch, host, clock, 0.03, 1.0) for _ in range(20)]
    assert busy[-1].other_load == pytest.approx(0.5) and busy[-1].loaded
    assert not run(watch, host, clock, 2.0, 0.0).loaded
    assert run(watch, host, clock, 2.0, 0.4).other_load == pytest.approx(0.2, abs=0.02)


def test_load_is_known_in_the_first_slice_however_short(clock, monkeypatch):
    def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(state.time, "sleep", sleep)
    host = Host()
    host.busy = 2.0
    watch = Watch("cpu", Sensor(), host, list)
    watch.begin()
    clock.now += 0.05
    watch.wait()
    assert run(watch, host, clock, 0.001, 2.0).loaded
    before = clock.now
    watch.wait()
    assert clock.now == before, "the load is known by now"


def test_long_slice_has_few_samples_of_the_device(clock):
    taken = []
    sensor = SimpleNamespace(sample=lambda: taken.append(clock.now) or Sample())
    watch = Watch("cuda", sensor, Host(), list)
    watch.begin()
    for _ in range(5000):
        clock.now += 0.004
        watch.sample()
    assert 20 / 0.06 < len(taken) < 20 / 0.04


def test_old_load_readings_are_dropped(clock):
    host = Host()
    watch = Watch("cpu", Sensor(), host, list)
    assert run(watch, host, clock, 1.0, 2.0).loaded
    clock.now += 60.0
    assert run(watch, host, clock, 0.03, 0.0).other_load is None
    assert run(watch, host, clock, 0.5, 0.0).other_load == pytest.approx(0.0)


def test_load_counters_are_not_read_for_every_short_slice(clock):
    host = Host()
    watch = Watch("cuda", Sensor(), host, list)
    for _ in range(100):
        watch.begin()
        clock.now += 0.001
        watch.end()
    assert host.reads <= 3


def test_last_sample_of_device_is_dropped(clock):
    samples = [
        Sample(1500, 600.0, 60, 0x4),
        Sample(1700, 640.0, 61, 0x0),
        Sample(1600, 620.0, 62, 0x2),
        Sample(1980, 120.0, 55, 0x1),
    ]
    watch = Watch("cuda", Sensor(samples, others=2), Host(), list)
    watch.begin()
    for _ in range(3):
        watch.sample()
    found = watch.end()
    assert (found.clock_mhz, found.power_w, found.temperature_c) == (1600, 620.0, 61)
    assert found.throttle == 0x6 and found.capped
    assert found.other_processes == 2 and found.loaded


@pytest.mark.parametrize(
    ("throttle", "capped"),
    [(None, False), (0x1, False), (0x2, False), (0x10, False), (0x113, False)]
    + [(bit, True) for bit in (0x4, 0x8, 0x20, 0x40, 0x80)],
)
def test_only_power_and_heat_count_as_throttling(throttle, capped):
    assert State(throttle=throttle).capped is capped


@pytest.mark.parametrize(("clock", "capped"), [(1965.0, False), (1900.0, True), (None, True)])
def test_device_at_its_highest_clock_is_not_throttled(clock, capped):
    assert State(clock_mhz=clock, throttle=0x4, highest_mhz=1980.0).capped is capped


def test_states_of_slices_combine_into_one():
    found = combine(
        [
            State(1500, 600, None, 0x4, 0.0, None, 0.3),
            State(1700, None, None, 0x1, 0.4, 1, 0.1),
            State(1710, None, None, None, None, 0, 9.0),
        ]
    )
    assert (found.clock_mhz, found.power_w, found.temperature_c) == (1700, 600, None)
    assert (found.throttle, found.other_load, found.other_processes) == (0x5, pytest.approx(0.1), 1)
    assert combine([]) == State() and not combine([State()]).loaded


def test_other_load_limit_is_higher_for_the_host_of_a_gpu():
    assert State(other_load=0.2, limit=LOADED["cpu"]).loaded
    assert not State(other_load=0.2, limit=LOADED["cuda"]).loaded


@pytest.mark.parametrize(
    ("load", "average", "count", "words"),
    [
        (0.0, 5.0, None, None),  # the load average includes earlier load
        (0.9, 2.0, None, "other processes use 1.8 of 2 cores"),
        (None, 1.5, None, "the load average is 1.5 on 2 cores"),
        (None, None, None, None),
        (0.0, 0.0, 1, "1 other process on the device"),
        (0.9, 0.0, 2, "other processes use 1.8 of 2 cores, 2 other processes on the device"),
    ],
)
def test_other_work_before_a_benchmark_is_described(load, average, count, words):
    assert Before(2, average, State(other_load=load, other_processes=count)).words == words


class NVMLError(Exception):
    pass


def nvml(pids, **answers):
    """A fake NVML whose device runs these processes; any other query is an error."""

    def ask(name):
        def answer(*_):
            if name not in answers:
                raise NVMLError(name)
            return answers[name]

        return answer

    names = ("PowerUsage", "ClockInfo", "MaxClockInfo", "Temperature", "CurrentClocksEventReasons")
    return SimpleNamespace(
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=pid) for pid in pids],
        **{f"nvmlDeviceGet{name}": ask(name) for name in names},
    )


def test_values_that_a_device_does_not_report_are_none():
    device = Device(nvml([], PowerUsage=345_600, ClockInfo=1755), None)
    assert device.sample() == Sample(1755, 345.6, None, None)


def test_processes_of_another_namespace_are_not_foreign():
    pids = [4242]
    device = Device(nvml(pids), None)
    assert device.other_processes({1, 2}, workers=1) is None  # one process, perhaps ours
    assert device.other_processes({1, 4242}, workers=1) == 0
    pids.append(5555)
    assert device.other_processes({1, 4242}, workers=1) == 1


def test_process_count_that_grew_with_workers_is_trusted():
    pids = [900]
    device = Device(nvml(pids), None)
    assert device.other_processes({1}, workers=0) == 1
    assert device.other_processes({1, 2}, workers=1) is None  # ours is not listed
    pids.append(901)
    assert device.other_processes({1, 2}, workers=1) == 1
    pids += [902, 903]
    assert device.other_processes({1, 2}, workers=1) == 3  # one of the four is ours


def test_empty_device_process_list_counts_as_unknown():
    device = Device(nvml([]), None)
    assert device.other_processes({1}, workers=0) is None
    assert device.other_processes({1, 2}, workers=1) is None


def test_several_devices_report_the_worst_of_them():
    slow = nvml([7, 8], PowerUsage=345_600, ClockInfo=1200, CurrentClocksEventReasons=4)
    fast = nvml([7], PowerUsage=690_000, ClockInfo=1755, CurrentClocksEventReasons=1)
    both = Devices([Device(slow, None), Device(fast, None)])
    found = both.sample()
    assert (found.clock_mhz, found.power_w, found.throttle) == (1200, 690, 5)
    assert both.other_processes({7}, 1) == 1


def test_unknown_device_has_empty_samples():
    assert sensor("cuda", []).sample() == Sample()
    assert sensor("mps", []).sample() == Sample()
    assert sensor("cuda", ["GPU-none"]).sample() == Sample()


def test_constant_clock_of_virtual_machine_is_ignored(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : fpu hypervisor\ncpu MHz : 2596.150\n")
    assert clock_reader(tmp_path, cpuinfo)() is None
    cpuinfo.write_text("flags : fpu aperfmperf\ncpu MHz : 2000.0\ncpu MHz : 3000.0\n")
    assert clock_reader(tmp_path, cpuinfo)() == 2500.0
    for core, kilohertz in enumerate((1_000_000, 1_500_000)):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{kilohertz}\n")
    assert clock_reader(tmp_path, cpuinfo)() == 1250.0


def test_sampling_the_device_takes_less_than_a_millisecond():
    watch = state.watch("cpu", [], list)
    began = time.process_time()
    for _ in range(200):
        watch.begin()
        watch.sample()
        watch.end()
    assert (time.process_time() - began) / 200 < 1e-3
