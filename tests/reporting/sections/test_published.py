"""Published figures stand beside this machine's rows of the same cells."""

import planted

from lmperf.reporting.sections import section

CELL = {"batch": 8, "d_head": 16, "dtype": "float32", "causal": False, "phase": "forward"}


def attention(seq_len, ms, **values):
    work = {"flops": 1e6 * seq_len**2, "seq_len": seq_len}
    return planted.row("attention", ms, implementation="eager", **CELL | work | values)


def lines(*rows):
    """(title, lines) of each topic of the page."""
    topics = section(planted.evidence(*rows), "published").by_topic
    return {title: lines.frame for title, lines, _ in topics}


def test_largest_published_cell_of_a_source_is_shown():
    found = lines(attention(256, 1.5), attention(1024, 6.5))["Attention"]
    ours = found[(found["source"] == "write-up 000") & (found["metric"] == "time")]
    assert ours["here"].tolist() == [6.5] and "length 1024" in ours["cell"].iloc[0]


def test_signs_of_times_do_not_stand_beside_memory():
    capped = {"phase": "backward", "saved_mib": 50, "marks": "capped"}
    found = lines(attention(1024, 6.5, **capped))["Attention"]
    signs = found.drop_duplicates("metric").set_index("metric")["signs"]
    assert signs["time"] == ("capped",) and signs["memory before backward"] == ()


def test_values_have_their_unit_and_seconds_become_ms():
    cell = {"size": "0.97B", "context_length": 256, "batch": 4, "dtype": "float32"}
    step = planted.row("end_to_end", 57.0, implementation="eager", phase="forward", **cell)
    found = lines(step)["End to end"].set_index("device")
    assert found.loc["MacBook Air, CPU", "published"] == "2,517 ms"
    assert found["quantity"].unique().tolist() == ["time (here in ms)"]
