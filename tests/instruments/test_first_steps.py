import pytest

from lmperf.instruments.first_steps import COLUMNS, measured

pytestmark = pytest.mark.process


def test_first_steps_are_timed_by_part():
    rows = measured("tiny", 16, 1, "float32", "cpu", 3)
    assert [tuple(row) for row in rows] == [COLUMNS] * 3
    for row in rows:
        parts = row["forward_ms"] + row["backward_ms"] + row["optimizer_ms"]
        assert 0 < parts == pytest.approx(row["step_ms"]) and row["reserved_mib"] == 0


def test_failed_process_is_reported_in_one_line(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho 'KeyError: 5B' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(RuntimeError, match=r"timed the first steps failed: KeyError: 5B$"):
        measured("5B", 16, 1, "float32", "cpu", 1)
