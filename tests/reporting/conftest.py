"""Make `planted` importable wherever the tests start, and judge empty benchmarks once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def judge_empty_benchmarks_once():
    """A page asks for benchmarks without rows, whose empty frames took half of these tests."""
    from lmperf.reporting import evidence as module
    from lmperf.reporting.evidence import Evidence

    judge, empty = Evidence._judged, {}
    typed, untyped = module.typed, {}

    def judged(evidence, stem, again=False):
        if (evidence.again if again else evidence.raw).get(stem):
            return judge(evidence, stem, again)
        if stem not in empty:
            empty[stem] = judge(evidence, stem, again)
        return empty[stem].copy()

    def typed_once(rows, benchmark):
        if rows:
            return typed(rows, benchmark)
        if benchmark.stem not in untyped:
            untyped[benchmark.stem] = typed(rows, benchmark)
        return untyped[benchmark.stem].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evidence, "_judged", judged)
        patch.setattr(module, "typed", typed_once)
        yield
