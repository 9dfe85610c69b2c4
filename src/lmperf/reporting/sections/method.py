"""How it was measured: the machine, its ceilings, noise floors, rows and the cost of measuring."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from lmperf.benchmarks import in_order
from lmperf.reporting.cells import SIGNS
from lmperf.reporting.columns import Quantity, number
from lmperf.reporting.frames import having
from lmperf.reporting.judging import WAITING
from lmperf.reporting.rows import Rows
from lmperf.reporting.sections import Section
from lmperf.reporting.sections.repeatability import is_assumed
from lmperf.reporting.words import absent
from lmperf.statistics import LEAST_FLOOR
from lmperf.transformer.sizes import COURSES, SIZES

COMMIT_LENGTH = 12
DIRTY = "-dirty"
NO_COMMIT = "unknown"  # where Git failed
# Faults and signs of rows, and their words.
FAULTS = {"failed": "withheld", "oom": "out of memory", "unsupported": "unsupported"}
FAULTS |= {name: name for name in ("other", *SIGNS)}
# Fact of an environment -> its words, in the order of the table; further facts follow.
FACTS = {
    "device": "device",
    "devices": "devices",
    "multiprocessors": "SMs",
    "device_memory_gib": "device memory (GiB)",
    "clock_sm_mhz": "SM clock (MHz)",
    "clock_memory_mhz": "memory clock (MHz)",
    "power_limit_w": "power limit (W)",
    "cpu_model": "CPU",
    "cores": "cores",
    "cores_of_host": "cores of the host",
    "threads": "threads used",
    "memory_gib": "memory (GiB)",
    "os": "operating system",
    "driver": "driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "torch": "PyTorch",
    "triton": "Triton",
    "python": "Python",
    "matmul_precision": "float32 matmul precision",
    "tf32_matmul": "TF32 in matmuls by default",
    "tf32_cudnn": "TF32 in cuDNN by default",
    "lmperf": "lmperf",
    "commit": "commit",
    "measured_at": "newest row at",
}
LEFT_OUT = ("dirty", "uuid", "uuids", "kind", "driver_branch")


class Method(Section):
    """Facts about the machine, its evidence and what measuring it cost."""

    @cached_property
    def facts(self) -> Rows:
        """A line for each fact and environment."""
        return self.table_rows(self._facts())

    def _facts(self) -> Iterator[dict]:
        environments = self.evidence.environments
        rest = sorted(
            {key for facts in environments.values() for key in facts} - {*FACTS, *LEFT_OUT}
        )
        for key, words in {**FACTS, **{key: key.replace("_", " ") for key in rest}}.items():
            for name, facts in environments.items():
                if text := _fact(facts.get(key), key):
                    yield {"fact": words, "environment": name, "value": text}

    @cached_property
    def sheet(self) -> Rows:
        """The rates of the device's data sheet; nothing if it is unknown."""
        sheet = self.evidence.sheet
        rates = {f"{d}_tflops": rate for d, rate in sheet.tflops.items()} if sheet else {}
        lines = [{**vars(sheet), **rates, "tflops": None}] if sheet else []
        return self.table_rows(lines)

    @cached_property
    def sizes(self) -> Rows:
        """The sizes that were measured, with their names in each course."""
        frames = [self.evidence.rows(stem) for stem in self.evidence.stems]
        measured = {size for rows in frames if "size" in rows for size in rows["size"].dropna()}
        return self.table_rows(
            {
                "size": size.short,
                "parameters": size.parameters(),
                **{n: getattr(size, n) for n in ("d_model", "d_ff", "num_layers", "num_heads")},
                "d_head": size.d_head,
                **{
                    f"course_{year}": next((name for name in names if names[name] == key), None)
                    for year, names in COURSES.items()
                },
            }
            for key, size in SIZES.items()
            if size.short in measured
        )

    @cached_property
    def floors(self) -> Rows:
        """The noise floors of each kind of row, and how far apart its rows measured twice are."""
        return self.table_rows(
            {
                "kind": kind,
                "floor": max(floor, LEAST_FLOOR),
                "source": "assumed" if kind in self.evidence.assumed else "R1",
                "pairs": len(apart),
                "median": apart.median(),
                "worst": apart.max(),
                "speedup_floor": max(self.evidence.speedup_floors[kind], LEAST_FLOOR),
                "speedup_source": "assumed" if is_assumed(self.evidence, kind) else "R1",
                "speedups": len(
                    having(self.evidence.speedups_twice, noise_kind=kind, follows=False)
                ),
            }
            for kind, floor in self.evidence.floors.items()
            if kind != WAITING or self.evidence.is_cuda
            for apart in [self.of("repeatability").of_kind(kind)["apart"].astype(float)]
        )

    @cached_property
    def benchmarks(self) -> Rows:
        """A line for each benchmark: how many rows it has, by status, sign and commit."""
        return self.table_rows(map(self._counted, in_order(self.evidence.stems)))

    @property
    def faults(self) -> list[Quantity]:
        """A column for each fault or sign that some row has."""
        counts = self.benchmarks.frame
        return [
            number(name, words, "whole")
            for name, words in FAULTS.items()
            if any(counts.get(name, ()))
        ]

    def _counted(self, stem: str) -> dict:
        rows = self.evidence.rows(stem)
        commits = rows["commit"].dropna().str.removesuffix(DIRTY).str[:COMMIT_LENGTH]
        commits = commits[commits != NO_COMMIT]
        newest = rows.loc[commits.index, "measured_at"].idxmax() if len(commits) else None
        signs = rows["signs"].explode().value_counts()
        return {
            "benchmark": stem,
            "rows": len(rows),
            "ok": int(rows["state"].isna().sum()),
            "checked": int(rows["error_bound"].notna().sum()),
            "failed": int(rows["words"].eq("withheld").sum()),
            "oom": int((rows["state"] == "oom").sum()),
            "unsupported": int((rows["state"] == "unsupported").sum()),
            "other": int(rows["state"].isin(["crash", "timeout", "unchecked", "nan"]).sum()),
            **{sign: int(signs.get(sign, 0)) for sign in SIGNS},
            "dirty": int(rows["commit"].str.endswith(DIRTY).eq(True).sum()),
            "commits": commits.nunique(),
            "newest": f"`{commits[newest]}`" if len(commits) else "not recorded",
        }

    @cached_property
    def cost(self) -> Rows:
        """Seconds of measuring by benchmark, of the jobs that are on record."""
        jobs = self.evidence.cost
        if jobs.empty:
            return self.table_rows([])
        sums = jobs.groupby("stem", as_index=False, sort=False)["wall_s"].sum()
        return self.table_rows(
            sums.merge(jobs["stem"].value_counts().rename("jobs"), on="stem").to_dict("records")
        )


def _fact(value, key: str) -> str:
    if absent(value) or value in ("", {}, []):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name}={value[name]}" for name in sorted(value))
    if key == "commit":
        return str(value)[:COMMIT_LENGTH]
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
