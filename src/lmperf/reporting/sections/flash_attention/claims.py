"""What the evidence on FlashAttention-2 says."""

from __future__ import annotations

from lmperf.reporting import gates
from lmperf.reporting.ceilings import achieved_tflops, matmul_share
from lmperf.reporting.claims import VERDICTS, Claim, NotMeasured, frame_of, rows_of
from lmperf.reporting.evidence import MachineEvidence, in_order
from lmperf.reporting.numbers import dtype_words, implementation_words
from lmperf.reporting.scaling import threshold
from lmperf.reporting.sections.flash_attention.gate import TENSORS
from lmperf.reporting.sections.flash_attention.kinds import numerics_words, single
from lmperf.reporting.sections.flash_attention.tables import REFERENCE, kernel_of
from lmperf.reporting.sections.kernel_gates import kernel_tests, worst_gate
from lmperf.reporting.speedup import compared_rows

STEM = "flash_attention"
ERROR_RATIO = 2.0
CELL = ["batch", "heads", "seq_len", "d_head", "dtype", "causal"]  # both launches of a cell


def _against_plain(evidence: MachineEvidence, phase: str) -> dict:
    frame = frame_of(evidence, STEM)
    kernel = kernel_of(frame)
    rows = compared_rows(evidence, STEM, "implementation", REFERENCE)
    rows = rows[single(rows) & (rows["implementation"] == kernel) & (rows["phase"] == phase)]
    if rows.empty:
        raise NotMeasured(f"no {phase} of {kernel} and {REFERENCE} that were timed in turn")
    found = threshold(rows["seq_len"], rows["verdict"])
    best = rows.loc[rows["ratio"].idxmax()]
    return {
        "kernel": implementation_words(kernel),
        "reference": implementation_words(REFERENCE),
        "first": found.first,
        "steady": found.steady,
        "faster": found.faster,
        "same": found.same,
        "mixed": found.mixed,
        "slower": found.slower,
        "lowest": rows["ratio"].min(),
        "highest": rows["ratio"].max(),
        "length": best["seq_len"],
        "d_head": best["d_head"],
        "numerics": numerics_words(best["dtype"], kernel),
    }


def _reach(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    kernel = kernel_of(frame)
    frame = frame[gates.shown(frame) & (frame["phase"] == "forward_backward")]
    longest = frame.groupby("implementation")["seq_len"].max()
    if kernel not in longest or REFERENCE not in longest:
        raise NotMeasured("no forward + backward of both")
    return {
        "kernel": implementation_words(kernel),
        "reference": implementation_words(REFERENCE),
        "ours": longest[kernel],
        "theirs": longest[REFERENCE],
    }


def _rate(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    kernel = kernel_of(frame)
    rows = rows_of(evidence, STEM, implementation=kernel, phase="forward")
    # In float32 the kernel has no IEEE products: its ceiling is another one (`filled`).
    rows = rows[single(rows) & ((rows["dtype"] != "float32") | (kernel != "triton"))]
    rate, share = achieved_tflops(rows), matmul_share(evidence, rows)
    if share.isna().all():
        raise NotMeasured("no matmul ceiling of the same numerics")
    best = rows.loc[share.idxmax()]
    return {
        "kernel": implementation_words(kernel),
        "rate": rate[share.idxmax()],
        "share": share.max(),
        "length": best["seq_len"],
        "d_head": best["d_head"],
        "numerics": dtype_words(best["dtype"]),
    }


def _against_plain_error(evidence: MachineEvidence) -> dict:
    frame = frame_of(evidence, STEM)
    kernel = kernel_of(frame)
    columns = [f"error_{name}" for name in TENSORS]
    ours = frame[frame["implementation"] == kernel].groupby(CELL)[columns].max()
    theirs = frame[(frame["implementation"] == REFERENCE) & gates.shown(frame)]
    theirs = theirs.groupby(CELL)[columns].max()
    ratio = (ours / theirs.where(theirs > 0)).stack().dropna()
    if ratio.empty:
        raise NotMeasured("no cell has the errors of both")
    cell, column = ratio.idxmax()[:-1], ratio.idxmax()[-1]
    above = in_order("dtype", ratio[ratio > ERROR_RATIO].index.get_level_values("dtype"))
    return {
        "kernel": implementation_words(kernel),
        "reference": implementation_words(REFERENCE),
        "ratio": ratio.max(),
        "allowed": ERROR_RATIO,
        "above": int((ratio > ERROR_RATIO).sum()),
        "compared": len(ratio),
        "numerics_above": [numerics_words(dtype, kernel) for dtype in above],
        "tensor": TENSORS[column.removeprefix("error_")],
        "length": cell[CELL.index("seq_len")],
        "d_head": cell[CELL.index("d_head")],
        "numerics": numerics_words(cell[CELL.index("dtype")], kernel),
    }


def _kernel_tests(evidence: MachineEvidence) -> dict:
    lengths = frame_of(evidence, "flash_attention_check")["seq_len"].nunique()
    return {**kernel_tests(evidence, "flash_attention_check"), "lengths": lengths}


def _speed_claim(phase: str, words: str, summary: bool) -> Claim:
    return Claim(
        name=f"faster_{phase}",
        text=f"In the {words}, {{{{ kernel }}}} pays against {{{{ reference }}}}"
        "{% if first %} from length {{ first }} on{% else %} at no length measured{% endif %}:"
        " {{ lowest | ratio }} to {{ highest | ratio }} (the most: length {{ length }}, d_head"
        " {{ d_head }}, {{ numerics }})." + VERDICTS,
        values=lambda evidence: _against_plain(evidence, phase),
        holds=lambda v: v["steady"],
        about=f"the {words} against plain attention",
        instead="The lengths do not follow one another.",
        summary=summary,
    )


CLAIMS = (
    _speed_claim("forward", "forward", True),
    _speed_claim("backward", "backward", True),
    Claim(
        name="worst_gate",
        text="Of {{ rows }} timed rows, the one closest to its bound has an error of"
        " {{ error | error }} where {{ bound | error }} is allowed, {{ share | percent }} of it:"
        " {{ name }}.",
        values=lambda evidence: worst_gate(evidence, STEM),
        holds=lambda v: v["red"] == 0 and v["share"] <= 1,
        about="the gates of FlashAttention-2",
        instead="{{ red }} of the rows are over their bound.",
        summary=True,
    ),
    Claim(
        name="error_against_plain",
        text="The error of {{ kernel }} is nowhere above {{ allowed | ratio }} that of"
        " {{ reference }} in the same dtype: at most {{ ratio | ratio }} ({{ tensor }}, length"
        " {{ length }}, d_head {{ d_head }}, {{ numerics }}).",
        values=_against_plain_error,
        holds=lambda v: v["ratio"] <= v["allowed"],
        about="the error against that of plain attention",
        instead="It is above in {{ above }} of {{ compared }} comparisons, in"
        " {{ numerics_above | listed }}.",
    ),
    Claim(
        name="kernel_tests",
        text="All {{ cases }} cases of the kernel's own tests pass ({{ lengths }} lengths;"
        " {{ dtypes | listed }}).",
        values=_kernel_tests,
        holds=lambda v: v["passed"] == v["cases"],
        about="the tests of the Triton kernel",
        instead="{{ passed }} pass; the first that does not: {{ failed }}.",
        summary=True,
    ),
    Claim(
        name="rate",
        text="At its best the forward of {{ kernel }} runs at {{ rate | sig }} TFLOP/s,"
        " {{ share | percent }} of this machine's matmul ceiling in the same numerics (length"
        " {{ length }}, d_head {{ d_head }}, {{ numerics }}).",
        values=_rate,
        holds=lambda v: v["share"] <= 1,
        about="the share of the matmul ceiling that the kernel reaches",
        instead="Nothing can be above a ceiling: the ceiling or the count of FLOPs is wrong.",
    ),
    Claim(
        name="reach",
        text="{{ kernel }} runs forward and backward up to length {{ ours }}, {{ reference }} up to"
        " {{ theirs }}.",
        values=_reach,
        holds=lambda v: v["ours"] >= v["theirs"],
        about="how long a sequence each can do",
        instead="The plain one goes further.",
    ),
)
