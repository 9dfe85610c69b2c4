"""The report compares a user's custom implementation with all others and states it first."""

from dataclasses import replace

import pandas as pd
import pytest
import synthetic
from limits import faults

from lmperf.reporting import custom, pages
from lmperf.reporting.evidence import having
from lmperf.reporting.markdown import markdown
from lmperf.reporting.numbers import error
from lmperf.reporting.sections import compose
from lmperf.reporting.speedup import Series, compared

STEM = "flash_attention"
TRITON = "Triton"


def with_custom(evidence, factor, stem=STEM, like="triton", **columns):
    """The evidence with a custom `mine` that takes ``factor`` times as long as ``like``.

    columns: values that replace those copied from the rows of ``like``.
    """
    frame = evidence.frames[stem]
    mine = frame[frame["implementation"] == like].assign(implementation="mine", again_ms=None)
    times = ["median_ms", "mean_ms", "p20_ms", "p80_ms", "std_ms"]
    mine[times] = mine[times] * factor
    for column in {"rounds_ms", "sustained_rounds_ms"} & {*frame}:
        mine[column] = mine[column].map(
            lambda text: ";".join(str(float(ms) * factor) for ms in text.split(";")),
            na_action="ignore",
        )
    if "sustained_ms" in frame:
        mine["sustained_ms"] *= factor
    both = pd.concat([frame, mine.assign(**columns)], ignore_index=True)
    return replace(evidence, frames={**evidence.frames, stem: both})


def custom_sentences(evidence, stem=STEM):
    return [s.sentence for s in compose(stem, evidence, drawn=False).statements if "mine" in s.name]


@pytest.mark.parametrize("make", [synthetic.gpu_evidence, synthetic.cpu_evidence])
def test_synthetic_evidence_has_no_custom_implementation(make):
    evidence = make()
    assert not [
        custom.names(evidence, stem) for stem in evidence.frames if custom.names(evidence, stem)
    ]


@pytest.mark.slow
def test_custom_implementation_is_compared_and_stated_first(gpu):
    evidence = with_custom(gpu, 2.0)
    made = compose(STEM, evidence, drawn=False)
    summary, *tables = made.parts["Custom implementations and peers"]
    assert len(tables) == gpu.frames[STEM]["phase"].nunique()
    cells = pd.concat([table.frame for table in tables])[f"over {TRITON}"].dropna()
    assert set(cells[cells.str.endswith(")")]) == {"0.50x (0.50-0.50)"}
    errors = pd.concat([table.frame for table in tables])["largest error / bound"]
    worst = gpu.frames[STEM].query("implementation == 'triton' and status == 'ok'").iloc[0]
    assert f"{error(worst['max_error'])} / {error(worst['error_bound'])}" in set(errors)
    first = made.statements[0]
    assert first.name == "external_flash_attention_mine" and first.place == "short"
    assert first.sentence.startswith("mine: 0.50x forward + backward over Triton, the fastest of")
    line = summary.frame.query("over == @TRITON and phase == 'forward + backward'").iloc[0]
    slower = line["slower"]
    assert f"; slower in {slower} of {slower} resolved cells." in first.sentence
    assert line["speed-up, geometric mean"] == "0.50x"
    assert summary.frame.query("over == @TRITON")["slower"].sum() == sum(
        cells.str.startswith("0.50x")
    )
    assert not faults(str(first))


@pytest.mark.slow
def test_summary_counts_marked_comparisons_apart(gpu):
    evidence = with_custom(gpu, 2.0, marks="loaded", reference=1.0)
    made = compose(STEM, evidence, drawn=False)
    summary = made.parts["Custom implementations and peers"][0].frame
    assert summary[["faster", "slower", "same"]].to_numpy().sum() == 0
    assert (summary["unresolved or marked"] > 0).all()
    assert set(summary["speed-up, geometric mean"]) == {"–"}
    assert custom_sentences(evidence) == [
        "mine was timed; too few of its forward + backward comparisons are resolved to sum them up."
    ]


def test_mean_needs_a_resolved_comparison(gpu):
    """The interval of the unresolved ones is narrow: they would count beside a resolved one."""
    frame = gpu.frames[STEM]
    rows = having(frame, implementation="triton", dtype="bfloat16", phase="forward", heads=32)
    # Without second processes the noise floor is unknown, and no close ratio is resolved.
    few = replace(gpu, frames={**gpu.frames, STEM: rows.assign(again_ms=None)})

    def line(factor):
        table = custom.table(STEM).make(with_custom(few, factor))[0]
        return table.frame.query("over == @TRITON").iloc[0]

    unresolved, resolved = line(1.03), line(5.0)
    assert unresolved["unresolved or marked"] == len(rows) > 1
    assert resolved["unresolved or marked"] == 0
    assert unresolved["speed-up, geometric mean"] == "–"
    assert resolved["speed-up, geometric mean"] == "0.20x"


def test_each_phase_needs_half_of_its_own_comparisons(gpu):
    evidence = with_custom(gpu, 2.0)
    frame, whole = evidence.frames[STEM].copy(), "forward_backward"
    few = frame[(frame["implementation"] == "mine") & (frame["phase"] == whole)].index[1:]
    frame.loc[few, ["marks", "reference"]] = ["loaded", 1.0]
    evidence = replace(evidence, frames={**evidence.frames, STEM: frame})
    pair = (Series.of(implementation="mine"), Series.of(implementation="triton"))
    assert whole in {*compared(evidence, STEM, *pair)["phase"]}
    assert compared(evidence, STEM, *pair, phase=whole).empty
    assert "too few of its forward + backward comparisons" in custom_sentences(evidence)[0]
    table = compose(STEM, evidence, drawn=False).parts["Custom implementations and peers"][0].frame
    means = table.query("over == @TRITON").set_index("phase")["speed-up, geometric mean"]
    assert means["forward + backward"] == "–" and means["forward"] == "0.50x"


@pytest.mark.slow
def test_mean_over_stale_rows_has_their_sign(gpu):
    frame = gpu.frames[STEM]
    old = frame.assign(stale=frame["implementation"] == "triton")
    evidence = with_custom(replace(gpu, frames={**gpu.frames, STEM: old}), 2.0, stale=False)
    summary = compose(STEM, evidence, drawn=False).parts["Custom implementations and peers"][0]
    over, mean = (next(c for c in summary.columns if c.name == n) for n in ("over", "mean"))
    stale = {peer.words for peer, cell in zip(over.cells, mean.cells, strict=True) if cell.marks}
    assert stale == {TRITON}


@pytest.mark.slow
def test_peer_is_compared_by_train_steps_on_its_page(cpu):
    stem = "end_to_end"
    evidence = with_custom(cpu, 0.5, stem, "eager")
    peer = evidence.frames[stem].replace({"implementation": {"mine": "liger"}})
    evidence = replace(evidence, frames={**evidence.frames, stem: peer})
    *others, last = compose(stem, evidence, drawn=False).statements
    assert last.name == "external_end_to_end_liger" and last.place == "page"
    assert " train step over " in last.sentence and ", the fastest of the others" in last.sentence
    assert others[0].place == "short"


def test_sentence_names_the_module_of_the_implementation(gpu):
    environments = {
        name: {**facts, "implementations": {f"{STEM}.mine": "course.attention:apply"}}
        for name, facts in gpu.facts["environments"].items()
    }
    evidence = replace(with_custom(gpu, 2.0), facts={**gpu.facts, "environments": environments})
    assert custom_sentences(evidence)[0].startswith("mine (`course.attention:apply`): 0.50x ")


def test_errors_of_a_custom_kernel_follow_those_of_triton(gpu):
    tables = compose(STEM, with_custom(gpu, 2.0), drawn=False).parts["F4"]
    dtypes = gpu.frames[STEM].query("implementation == 'triton'")["dtype"].nunique()
    assert len(tables) == 2 * dtypes
    ours, mine = tables[0], tables[dtypes]
    assert mine.caption.startswith("mine / PyTorch, float32") and "*" not in mine.caption
    assert ours.frame.equals(mine.frame)


def test_table_e7_ignores_a_custom_model(gpu):
    tables = compose(
        "end_to_end", with_custom(gpu, 1.0, "end_to_end", "compiled_blocks"), drawn=False
    ).parts
    assert not any("mine" in " ".join(table.frame.columns) for table in tables["E7"])
    assert any("mine" in table.caption for table in tables[custom.table("end_to_end").name])


def test_equal_implementation_is_on_par(gpu):
    frame = gpu.frames[STEM]
    cell = frame.query("implementation == 'triton' and phase == 'forward'").iloc[:1]
    one = frame[
        (
            frame[["seq_len", "d_head", "dtype", "heads", "batch"]]
            .eq(cell[["seq_len", "d_head", "dtype", "heads", "batch"]].iloc[0])
            .all(axis=1)
        )
        & (frame["causal"] == cell["causal"].iloc[0])
        & (frame["cuda_graph"] == cell["cuda_graph"].iloc[0])
    ]
    one = one[one["implementation"].isin(["triton", "eager"])]
    evidence = with_custom(replace(gpu, frames={**gpu.frames, STEM: one}), 1.0)
    assert custom_sentences(evidence) == [f"mine: on par with {TRITON}, the fastest of the others."]


@pytest.mark.slow
def test_implementation_without_a_time_states_the_reason(gpu):
    broken = with_custom(gpu, 1.0, status="crash", reason="exit code 3", median_ms=float("nan"))
    assert custom_sentences(broken) == ["mine has no time to show: crash (exit code 3)."]
    half = gpu.frames[STEM].query("implementation == 'triton'")["phase"] == "forward"
    status = half.map({True: "failed_check", False: "ok"}).to_numpy()
    in_part = with_custom(gpu, 1.0, status=status, reason="differs")
    assert (
        f" No time in {half.sum()} of {len(half)} rows: gate failed" in custom_sentences(in_part)[0]
    )


@pytest.mark.slow
def test_model_with_other_flops_never_counts_as_fastest(cpu):
    stem = "end_to_end"
    parameters = cpu.frames[stem].query("implementation == 'eager'")["parameters"]
    flops = cpu.frames[stem].query("implementation == 'eager'")["flops"]
    for share, fastest in (1.0, True), (0.9, False):
        other = {"parameters": share * parameters.to_numpy(), "flops": share * flops.to_numpy()}
        made = compose(stem, with_custom(cpu, 0.5, stem, "eager", **other), drawn=False)
        first = markdown(made.first[0])
        found = next(s.sentence for s in made.statements if s.name == "external_end_to_end_mine")
        assert found.endswith(" It is another model, of 90 % of the FLOPs.") != fastest
        assert ("mine" in first) == fastest


@pytest.mark.machine
def test_write_up_names_a_custom_implementation_once(cpu):
    evidence = with_custom(with_custom(cpu, 1.5, like="tiled"), 1.5, "end_to_end", like="eager")
    sections = pages.composed(evidence, synthetic.TEMPLATES, drawn=False)
    files = pages.machine_files(evidence, sections, synthetic.TEMPLATES)
    for stem in (STEM, "end_to_end"):
        assert "## Custom implementations and peers" in files[f"{stem}.md"]
    written = files["report.md"]
    assert written.count("- mine: ") == 2
    assert "mine" not in files["attention.md"]
