"""`lmperf doctor --links`: what it measures, and what it prints for made-up rows."""

from types import SimpleNamespace

import pytest

from lmperf.commands import links
from lmperf.commands.links import cases_of, check_links, rates_of
from lmperf.errors import UserError
from lmperf.reporting.links import Facts

GPU = SimpleNamespace(machine=SimpleNamespace(kind="cuda"))
LINKED = Facts("NVIDIA H200", ((18, 18), (18, 18)))


def row(case, gbps, **columns):
    ms = case.axes["message_bytes"] / gbps / 1e6
    return {**case.axes, "implementation": "library", "status": "ok", "median_ms": ms, **columns}


@pytest.fixture
def measured(monkeypatch):
    """Let two GPUs have links of these rates; what `measure` saves is made up."""

    def at(gbps, gpus=2):
        monkeypatch.setattr(links, "all_gpus", lambda: [f"GPU-{n}" for n in range(gpus)])
        monkeypatch.setattr(links, "facts_of", lambda _: LINKED)

        def measure(benchmark, groups, device, save, *_, **__):
            for group in groups:
                save([row(case, gbps[case.axes["operation"]]) for case in group], {})

        monkeypatch.setattr(links, "measure", measure)

    return at


def test_machine_without_two_gpus_gets_one_line(lmperf):
    code, out, err = lmperf("doctor", "--links")
    assert code == 2 and out == "" and err.count("\n") == 1
    assert "doctor --links measures between GPUs; this machine has 0 that torch can use" in err


def test_one_gpu_is_too_few(monkeypatch):
    monkeypatch.setattr(links, "all_gpus", lambda: ["GPU-0"])
    with pytest.raises(UserError, match="this machine has 1 that"):
        check_links(GPU, print)


def test_each_size_has_a_copy_and_all_reduces_of_two_and_all_gpus():
    two, three, eight = (cases_of(gpus) for gpus in (2, 3, 8))
    assert two == three and len(two) == 10
    assert {case.axes["ranks"] for case in eight} == {2, 8} and len(eight) == 15
    assert {c.axes["ranks"] for c in eight if c.axes["operation"] == "copy"} == {2}
    assert all(case.axes["message_bytes"] % (4 * 8) == 0 for case in eight)


def test_fast_links_exit_with_zero_and_a_line_for_each_rate(measured, capsys):
    measured({"copy": 396.0, "all_reduce": 367.0})
    assert check_links(GPU, print) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and sum(line.startswith("ok ") for line in lines) == 8
    small = [line for line in lines if line.startswith("no range")]
    assert all("copy" in line and ("1 MB" in line or "10 MB" in line) for line in small)


def test_slow_links_exit_with_one_and_the_likely_cause(measured, capsys):
    measured({"copy": 24.0, "all_reduce": 12.0})
    assert check_links(GPU, print) == 1
    slow = [line for line in capsys.readouterr().out.splitlines() if line.startswith("slow")]
    assert len(slow) == 8 and all("likely cause: " in line for line in slow)
    assert sum("PCIe instead of NVLink" in line for line in slow) >= 6


def test_time_over_leaves_later_sizes_unmeasured(measured, monkeypatch, capsys):
    measured({"copy": 396.0, "all_reduce": 367.0})
    monkeypatch.setattr(links, "_DEADLINE_S", -1.0)
    assert check_links(GPU, print) == 1
    out = capsys.readouterr().out
    assert out.count("not measured in time") == 8 and "2 GB: 367 GB/s" in out


class Nvml:
    """NVML of a GPU whose links have these states; after them an error of this name."""

    NVML_NVLINK_MAX_LINKS = 36
    NVMLError = type("NVMLError", (Exception,), {})
    NVMLError_InvalidArgument = type("InvalidArgument", (NVMLError,), {})
    NVMLError_NotSupported = type("NotSupported", (NVMLError,), {})

    def __init__(self, states, after):
        self._states, self._after = states, getattr(self, after)

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= len(self._states):
            raise self._after
        return self._states[link]


@pytest.mark.parametrize(
    ("states", "after", "found"),
    [
        ([1] * 18, "NVMLError_InvalidArgument", (18, 18)),
        ([1] * 17 + [0], "NVMLError_NotSupported", (17, 18)),
        ([], "NVMLError_NotSupported", (0, 0)),
        ([1, 1], "NVMLError", None),
    ],
)
def test_active_links_are_counted_as_nvml_reports_them(states, after, found):
    assert links.nvlinks(Nvml(states, after), None) == found


def test_failed_rows_keep_their_reason():
    cases = cases_of(2)
    rows = [row(case, 300.0) for case in cases]
    rows[0] |= {"status": "timeout", "reason": "took longer than 30 s"}
    first, *others = rates_of(cases, rows)
    assert first.gbps is None and first.reason == "timeout: took longer than 30 s"
    assert all(rate.gbps == pytest.approx(300.0) for rate in others)
