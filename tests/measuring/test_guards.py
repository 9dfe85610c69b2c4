"""Cheats of custom implementations are found; the project's own are not looked at."""

import pytest

CHEATS = {
    "caches": "a timed call returned a wrong out",
    "changes_its_inputs": "changed its inputs",
    "leaks": "memory grows",
    "postpones_its_work": "returned a Lazy, which is no plain tensor",
    "works_behind": "work outlives the call",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_fails(measured, name):
    rows = measured(["doubles", "mine"], external={"mine": f"toys:{name}"}, size=[8])
    assert {row["status"] for row in rows["doubles"]} == {"ok"}
    assert {row["status"] for row in rows["mine"]} == {"failed_check"}
    assert all(CHEATS[name] in row["reason"] for row in rows["mine"])


def test_what_is_no_cheat_passes_with_a_note(measured):
    entries = ("doubles", "reuses_its_result", "changes_settings", "stops_the_clock")
    external = {f"my_{name}": f"toys:{name}" for name in entries}
    rows = measured(["also_doubles", *external], external=external, size=[8])
    assert {row["status"] for of in rows.values() for row in of} == {"ok"}
    assert rows["my_doubles"][0].get("marks", "") in ("", "loaded")
    assert "reused_output" in rows["my_reuses_its_result"][0]["marks"]
    assert "settings" in rows["my_changes_settings"][0]["marks"]
    assert float(rows["my_stops_the_clock"][0]["median_ms"]) >= 2
    assert float(rows["also_doubles"][0]["median_ms"]) < 1
