"""The answers about attention: plain, and as FlashAttention-2."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

from lmperf.benchmarks import load
from lmperf.dtypes import dtype_of
from lmperf.reporting.frames import FIRST, LAST, at, having, parts, required
from lmperf.reporting.gains import Gain
from lmperf.reporting.numbers import of_rows
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections.attention import FURTHER, of_usual_width
from lmperf.reporting.sections.attention import PHASES as PASSES
from lmperf.reporting.sections.course import Course
from lmperf.reporting.words import MIB, Count, NotMeasured, Range
from lmperf.statistics import SLOWER

HALF, PLAIN = "bfloat16", "eager"


class CourseAttention(Course):
    """The attentions of the subjects beside plain PyTorch."""

    @cached_property
    def attention(self) -> Rows:
        """The rows of the subject in one dtype, batch and mask, of its width nearest to 64."""
        rows = self.one("attention")
        return rows.kept(at(rows.frame, dtype=FIRST, batch=LAST, causal=FIRST))

    @property
    def of_one_width(self) -> Rows:
        return self.attention.kept(of_usual_width(self.attention.frame))

    @cached_property
    def growths(self) -> list[dict]:
        """`times` as long that phases of every width take at `end`, FURTHER times `start`."""
        rows = having(self.attention.sound, phase=[*PASSES])
        times = rows.pivot_table("ms", "seq_len", ["phase", "d_head"])
        pairs = [(n, FURTHER * n) for n in times.index if FURTHER * n in times.index]
        grown = [(a, b, (times.loc[b] / times.loc[a]).dropna()) for a, b in pairs]
        growths = [
            dict(start=a, end=b, times=of_rows(Range.of(times), rows))
            for a, b, times in grown
            if len(times)
        ]
        return required(growths, "no length that is four times another")

    @cached_property
    def kept(self) -> Rows:
        """Memory before the backward in MiB by length, with and without the inputs."""
        rows = self.of_one_width.where(phase="backward").frame
        rows = rows[rows["state"].isna()].dropna(subset=["saved_mib", "resident_mib"])
        return self.of_one_width.kept(rows.assign(kept=rows["saved_mib"] - rows["resident_mib"]))

    @property
    def kept_growth(self) -> float:
        """How many times as much the longest forward keeps as one of a quarter of its length."""
        kept = self.kept.frame.set_index("seq_len")["kept"]
        pairs = [n for n in kept.index if FURTHER * n in kept.index and kept[n] > 0]
        last = required(pairs, "no length that is four times another")[-1]
        return kept[FURTHER * last] / kept[last]

    def checks(self, *tensors: str) -> Rows:
        """For each attention and dtype: how many cells passed their check, the largest errors of
        some tensors in those, and the worst `failed` one with its `bound`."""
        columns = [f"error_{name}" for name in tensors]
        rows = self.every("flash_attention").frame
        rows = rows[rows["error_bound"].notna()].reindex(columns=[*rows, *{*columns} - {*rows}])
        lines = []
        for name in self.names("flash_attention"):
            for (dtype,), part in parts(having(rows, implementation=name), "dtype"):
                passed = part["state"] != "failed_check"
                failed = part[~passed].sort_values("max_error").tail(1)
                line = {"implementation": name, "dtype": dtype}
                line |= {"passed": Count(int(passed.sum()), len(part))}
                line |= part.loc[passed, columns].max().astype(float).to_dict()
                line |= {"failed": failed["max_error"].max(), "bound": failed["error_bound"].max()}
                lines.append(line)
        return self.table_rows(required(lines, "no attention was checked"))

    @cached_property
    def one_head(self) -> Rows:
        """The rows of one head of the subjects and plain PyTorch, causal if there are such."""
        names = [*self.names("flash_attention"), PLAIN]
        rows = self.rows("flash_attention").where(implementation=names).frame
        rows = rows[rows["heads"].eq(1) & ~rows["cuda_graph"].eq(True)]
        own = having(rows, implementation=self.names("flash_attention"))
        rows = having(rows, causal=bool(required(own, "no attention of one head")["causal"].max()))
        return self.rows("flash_attention").kept(rows)

    @property
    def usual_head(self) -> Rows:
        return self.one_head.kept(of_usual_width(self.one_head.frame))

    def over_plain(self, name: str) -> Gain:
        """The speed-ups of one head, forward and backward, over plain PyTorch."""
        return self.one_head.where(implementation=name, phase=[*PASSES]).over(PLAIN)

    @property
    def gains_over_plain(self) -> list[tuple[str, str, Gain]]:
        """(attention, phase, speed-up over plain PyTorch), of those that are resolved."""
        gains = []
        for name in self.names("flash_attention"):
            with suppress(NotMeasured):
                gains += [(name, phase, gain) for phase, gain in self.over_plain(name)]
        return gains

    @cached_property
    def slower(self) -> Rows:
        """The comparisons of one head in which the subject is slower than plain PyTorch."""
        rows = self.over_plain(self.subject("flash_attention")).rows
        return self.rows("flash_attention", having(rows, verdict=SLOWER))

    @property
    def slower_scores_mib(self) -> float:
        """The largest matrix of scores of these."""
        rows = self.slower.frame
        bytes_ = rows["dtype"].map(lambda dtype: dtype_of(dtype).bytes)
        return (rows["batch"] * rows["seq_len"] ** 2 * bytes_).max() / MIB

    @property
    def leaderboard(self) -> Rows:
        """Both phases of the subjects in the cell of the leaderboard of 2025."""
        axes = ("batch", "heads", "seq_len", "d_head")
        shape = dict(zip(axes, load("flash_attention").stated["leaderboard"], strict=True))
        both = {"phase": "forward_backward", "dtype": HALF, "causal": True}
        rows = self.every("flash_attention")
        return rows.kept(having(rows.sound, **both, **shape))
