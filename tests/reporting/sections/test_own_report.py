"""The first page of a report about custom implementations, and what is wrong with them."""

import json
import re
from functools import cache

import planted
import planted_own
import planted_ranks as ranks
import pytest
from planted_own import AUTOCAST, MODEL
from planted_steps import rung, step

from lmperf.names import call
from lmperf.reporting import untrusted
from lmperf.reporting.sections import section


@pytest.fixture(autouse=True)
def named():
    call({MODEL: "My LM", "my_attention": "FlashAttention, 64 x 64 tiles"})
    yield
    call({})


def first_page(*rows, **more):
    return planted.page("report", planted_own.evidence(*rows, **more))


@cache
def first_page_of(brought):
    """The first page of what somebody brought: the name of a function of `planted_own`."""
    return first_page(*getattr(planted_own, brought)())


def table(page, column):
    """The first table with a column: text of the first column -> cell."""
    made = next(one for one in page.tables if column in [of.header for of in one.columns])
    [cells] = [of.cells for of in made.columns if of.header == column]
    return dict(zip([cell.words for cell in made.columns[0].cells], cells, strict=True))


def headings(page):
    return re.findall(r"^#+ (.*)", page.text, re.MULTILINE)


# Whose report it is.


def test_title_has_the_names_that_authors_give():
    page = first_page_of("everything")
    title = "My LM, my_step, my_ddp, FlashAttention, 64 x 64 tiles and my_lrpe: performance on "
    assert headings(page)[0].startswith(title)


def test_name_that_ends_in_an_underscore_is_a_subject():
    entries = {"end_to_end.step_": {"entry": "student:step"}}
    facts = planted.H200 | {"implementations": entries}
    for chosen in ({}, {"end_to_end": ["step_"]}):
        row = step("0.13B", "float32", "step_", 10.0)
        evidence = planted.evidence(row, facts=facts, chosen=chosen)
        assert section(evidence, "own").title == untrusted.neutral("step_")


def test_name_that_ends_in_an_underscore_owns_columns():
    renamed = {"implementation": "lrpe_"}
    rows = [
        row | (renamed if row["implementation"] == planted_own.LRPE else {})
        for row in planted_own.lrpe()
    ]
    facts = planted.H200 | {"implementations": {"lrpe.lrpe_": {"entry": "student:lrpe"}}}
    page = planted.page("report/lrpe", planted.evidence(*rows, facts=facts))
    assert table(page, f"{untrusted.neutral('lrpe_')} (ms)")["forward"].value == 5.0


def test_steps_without_those_of_lmperf_are_shown_alone():
    rows = [row for row in planted_own.steps() if row["implementation"] == MODEL]
    text = first_page(*rows).text
    assert "takes 21.0 ms at small and 168 ms at large.**" in text and "lmperf's" not in text


def test_many_names_are_counted():
    rows = [step("0.13B", "float32", f"step_{n}", 10.0) for n in range(9)]
    entries = {f"end_to_end.step_{n}": {"entry": "student:step"} for n in range(9)}
    evidence = planted.evidence(*rows, facts=planted.H200 | {"implementations": entries})
    assert section(evidence, "own").title == "step_0, step_1, step_2, step_3 and 5 others"


def test_a_report_without_custom_implementations_is_lmperfs():
    page = planted.page("report", planted.evidence(*planted_own.steps()))
    assert headings(page)[0].startswith("Transformer language models on")


# Its parts.

PARTS = {
    "steps": "Train steps",
    "memory": "Memory",
    "profiles": "Where the time goes",
    "strategies": "On two GPUs",
}


@pytest.mark.parametrize("brought", PARTS)
def test_what_was_not_brought_is_left_out(brought):
    page = first_page_of(brought)
    assert [PARTS[brought]] == [one for one in headings(page) if one in PARTS.values()]


def test_attention_without_a_right_result_has_no_heading():
    causal = [one for one in planted_own.wrong_dq() if one["causal"].lower() == "true"]
    found = headings(first_page(*causal))
    assert "What does not work" in found and "Attention" not in found
    assert "Attention" in headings(first_page_of("wrong_dq"))


def test_what_a_machine_cannot_run_is_no_fault():
    head = {"seq_len": 1024, "d_head": 64, "dtype": "bfloat16", "causal": True}
    row = planted.row("flash_attention", implementation=planted_own.ATTENTION, **head)
    found = headings(first_page(row | {"status": "unsupported", "reason": "needs a GPU"}))
    assert "What this machine does not measure" in found and "What does not work" not in found


def test_reference_keeps_the_parts_about_lmperf():
    rows = [*planted_own.memory(), rung("float32", 20.0), rung("graph", 10.0)]
    assert "What to run" in headings(first_page(*rows, reference=True))
    assert "What to run" not in headings(first_page(*rows))


def test_fastest_step_stands_beside_lmperfs():
    page = first_page_of("steps")
    fastest = table(page, "step (ms)")
    assert [cell.value for cell in fastest.values()] == [21.0, 168.0]
    assert [cell.value for cell in table(page, "lmperf's fastest (ms)").values()] == [14.0, 112.0]
    assert [cell.value for cell in table(page, "SDPA, compiled (ms)").values()] == [15.0, 120.0]


def test_steps_are_of_a_cell_that_a_subject_ran_in():
    rows = [rung(name, 10.0, context_length=512) for name in ("float32", "autocast", "graph")]
    rows += [step("0.97B", "float32", MODEL, 30.0), rung("float32", 20.0)]
    own = section(planted_own.evidence(*rows), "own")
    assert own.fastest["context_length"].to_list() == [1024]
    assert own.reference["ms"].to_list() == [20.0]


def test_bf16_weights_are_no_reference():
    rows = [step("0.97B", "float32", MODEL, 30.0), rung("bf16_graph", 5.0), rung("graph", 10.0)]
    assert section(planted_own.evidence(*rows), "own").reference["ms"].to_list() == [10.0]


def test_ways_are_compared_with_the_first_one():
    page = first_page_of("steps")
    assert list(table(page, "small, over the first")) == [
        "My LM, float32",
        "My LM, bf16 autocast",
        "my_step, bf16 autocast",
    ]
    gains = table(page, "small, over the first")
    assert gains["My LM, bf16 autocast"].value == pytest.approx(30 / 21)
    assert gains["My LM, float32"].value is None


def test_recipe_is_compared_with_the_fastest_step():
    gains = table(first_page_of("steps"), "small, times as fast")
    assert gains["eager float32"].value == pytest.approx(21 / 20)


def test_profiles_are_of_the_subject():
    profiles = section(planted_own.evidence(*planted_own.profiles()), "profiles")
    assert profiles.lines.frame["implementation"].unique().tolist() == [MODEL]
    assert profiles.single["dtype"] == "float32"


def test_peaks_stand_beside_lmperfs():
    page = first_page_of("memory")
    assert "+10.0 %" in table(page, "float32, over lmperf's")["My LM"].words


def test_strategy_is_compared_with_pytorchs():
    own = section(planted_own.evidence(*planted_own.strategies()), "own")
    assert [name for name, _ in own.over_peers("my_ddp")] == ["DistributedDataParallel", "FSDP2"]


# The first findings of its pages.


def findings(page, *rows, **more):
    """What a page says of its subjects above the sections about them, and below their faults."""
    text = planted.page(page, planted_own.evidence(*rows, **more)).text.partition("\n## ")[0]
    return [one.removeprefix("- ") for one in text.splitlines() if one.startswith("- ")]


def test_page_of_steps_is_about_the_model_brought():
    model = [row for row in planted_own.steps() if row["implementation"] != planted_own.STEP]
    page = planted.page("end_to_end", planted_own.evidence(*model, *planted_own.warmup()))
    sizes = [10 / 7, 10 / 7], [2 / 3, 2 / 3], [6 / 7, 6 / 7]
    numbers = [number for of_sizes in sizes for number in (1024, *of_sizes)]
    assert planted.printed(page)[:12] == pytest.approx([*numbers, 3, 200, 1], rel=1e-5)
    assert all("My LM" in one for one in page.said[:3])


def test_page_of_memory_names_the_model_brought():
    page = planted.page("memory", planted_own.evidence(*planted_own.memory()))
    assert planted.printed(page) == [pytest.approx(-1 / 11, rel=1e-5)] and "My LM" in page.said[0]
    assert "Peak of a train step of My LM, context 512, batch 4" in {
        one.caption for one in page.tables
    }


def test_page_of_memory_is_about_all_that_were_brought():
    rows = [*planted_own.memory()]
    rows += [row | {"implementation": "another"} for row in rows if row["implementation"] == MODEL]
    recorded = {f"memory.{name}": {"entry": "s:f"} for name in (MODEL, "another")}
    facts = planted.H200 | {"implementations": recorded}
    page = planted.page("memory", planted.evidence(*rows, facts=facts))
    assert planted.printed(page) == [pytest.approx(-1 / 11, rel=1e-5)] * 2
    captions = [one.caption for one in page.tables]
    for name in ("My LM", "another"):
        assert f"Peak of a train step of {name}, context 512, batch 4" in captions
        assert any(one.startswith(f"Model {name}, peak of one train step") for one in captions)


def test_page_of_attention_is_about_the_one_brought():
    page = planted.page("attention", planted_own.evidence(*planted_own.plain_attention()))
    about = [one for one in page.numbers if "FlashAttention, 64 x 64 tiles" in one.where]
    assert {*map(float, (one.value for one in about))} >= {2, 3, 4}
    assert 0.25 in planted.printed(page), "its backward's peak over PyTorch's"


def with_another(name, *rows):
    """A page of my_attention, and of the same under another name."""
    mine = [row for row in rows if row["implementation"] == "my_attention"]
    rows = [*rows, *(row | {"implementation": "another"} for row in mine)]
    recorded = {f"{name}.{one}": {"entry": "s:f"} for one in ("my_attention", "another")}
    facts = planted.H200 | {"implementations": recorded}
    return planted.page(name, planted.evidence(*rows, facts=facts))


def test_flash_attention_page_is_about_all_that_were_brought():
    page = with_another("flash_attention", *planted_own.attention())
    for name in ("FlashAttention, 64 x 64 tiles", "another"):
        start = f"- {name} over SDPA cuDNN (filled grid"
        said = [one for one in page.numbers if one.where.startswith(start)]
        assert [one.verdict for one in said if one.verdict] == ["slower", "slower"]
        assert any(one.caption.startswith(f"Rates of {name}, filled grid") for one in page.tables)


def test_attention_page_is_about_all_that_were_brought():
    page = with_another("attention", *planted_own.plain_attention())
    subjects = re.findall(r"^- Memory of (.*): 4 times", page.text, re.MULTILINE)
    assert subjects == ["FlashAttention, 64 x 64 tiles", "another"]
    assert "**Memory of another, float32" in page.text


def test_page_of_attention_without_a_subject_has_no_words_on_memory():
    page = planted.page("attention", planted.evidence(*planted_own.plain_attention()))
    assert "Memory before backward is what" not in page.text


def test_page_of_strategies_is_about_the_one_brought():
    rows = [*planted_own.strategies(), planted_own.ranks.profiled("overlapped", 60, hidden=0.8)]
    assert findings("distributed", *rows) == [
        "my_ddp hides 40 % of the communication at batch 4 (40 to 40 %)."
    ]


@pytest.fixture
def buckets():
    """A strategy with three sizes of buckets, which trains a model of its author's."""
    names = {f"buckets_{size}": size for size in (1, 10, 100)}
    declared = {
        f"distributed.{name}": {"entry": "tests.adapters:get_ddp", "options": {"size_mb": size}}
        for name, size in names.items()
    }
    rows = [ranks.step("one_rank", 100)]
    for name, hidden in zip(names, (0.2, 0.6, 0.5), strict=True):
        rows += [
            ranks.step(name, 90 - 10 * hidden, model="own"),
            ranks.profiled(name, 92, hidden=hidden),
        ]
    return planted.evidence(*rows, facts=ranks.TWO_H200 | {"implementations": declared})


def test_figure_is_over_a_parameter_of_a_strategy(buckets):
    page = planted.page("distributed", buckets)
    [ms] = [of for name, of in page.figures.items() if name.endswith("by_parameter")][:1]
    assert 'A step takes least, 84.0 ms, with size_mb 10"' in page.text and ms
    assert "get_ddp" in json.dumps(ms), "a line for the function"


def test_model_of_a_strategy_is_a_column_where_several_values_stand(buckets):
    d2 = planted.page("distributed", buckets).tables
    models = [
        [cell.words for cell in column.cells]
        for one in d2
        for column in one.columns
        if column.header == "model"
    ]
    assert models and {*models[0]} == {"own", "–"}
    page = planted.page("distributed", planted_own.evidence(*planted_own.strategies()))
    assert "model" not in {column.header for one in page.tables for column in one.columns}


@pytest.mark.parametrize("how", ["by block", None])
def test_page_says_how_a_model_was_compiled(how):
    rows = [*planted_own.steps(), step("0.13B", "float32", f"{MODEL}_compiled", 9.0, compiled=how)]
    page = planted.page("end_to_end", planted_own.evidence(*rows))
    assert ("| by block |" in page.text) == bool(how)


@pytest.mark.parametrize("reference", [False, True])
def test_findings_about_lmperfs_code_are_for_reference(reference):
    said = " ".join(findings("end_to_end", *planted_own.steps(), reference=reference))
    assert ("The fastest step of the ladder" in said) == reference
    assert ("SDPA over plain attention, compiled by block" in said) == reference


def test_page_without_a_subject_stays_about_lmperfs_code():
    rows = [*planted_own.plain_attention(), rung("float32", 20.0), rung("autocast", 10.0)]
    assert findings("end_to_end", *rows)[-1].startswith("Eager step at context")


# What is wrong.


def faults(*rows):
    return section(planted_own.evidence(*rows), "faults").each()


def test_wrong_result_is_a_finding():
    said = [one for one in first_page_of("wrong_dq").said if "wrong dQ" in one]
    words = "FlashAttention, 64 x 64 tiles gives a wrong dQ for causal inputs**: error 1.2, bound"
    assert len(said) == 1 and words in said[0]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"causal": True}, "for causal inputs"),
        ({"seq_len": 4096}, "at length 4,096"),
        ({"phase": "backward"}, "in backward"),
        ({}, None),
    ],
)
def test_fault_says_what_its_rows_share(values, where):
    values = {name: str(value) for name, value in values.items()}
    rows = [
        row | {"status": "crash", "median_ms": ""}
        if values.items() <= row.items() and row["implementation"] == planted_own.ATTENTION
        else row
        for row in planted_own.attention()
    ]
    [fault] = faults(*rows)
    assert fault.where == where


def test_crash_has_its_reason():
    [fault] = faults(*planted_own.steps())
    assert (fault.state, fault.reason) == ("crash", "RuntimeError: no (s.py:12)")


def test_phase_that_a_step_does_not_have_is_no_fault():
    rows = [step("0.97B", AUTOCAST, planted_own.STEP, 20.0)]
    rows.append(step("0.97B", AUTOCAST, planted_own.STEP, None, phase="forward"))
    rows[-1] |= {"status": "unsupported"}
    assert not faults(*rows)


def test_faults_of_others_are_none():
    assert not faults(rung("float32", None), step("0.97B", "float32", MODEL, 30.0))


def test_author_may_add_words_to_the_first_page(tmp_path):
    words = '{% extends "lmperf/report.md.j2" %}\n{% block notes %}By me.{% endblock %}\n'
    (tmp_path / "report.md.j2").write_text(words)
    page = planted.page("report", planted_own.evidence(*planted_own.steps()), own=tmp_path)
    assert page.text.endswith("By me.\n")
