"""Tests of the rows that an edit of code, of a declaration or of the method makes stale.

Each edit is made on a copy of the sources. The keys of all rows of the default grids are computed
before and after the edit; the test lists the rows whose keys must differ.
"""

import ast
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import lmperf
from lmperf.benchmark import Axis, Case, Implementation
from lmperf.benchmarks import load, stems
from lmperf.dtypes import DTYPES, Dtype
from lmperf.evidence import closure, keys
from lmperf.evidence.closure import COUNTED_ELSEWHERE, DECLARATIONS, is_counted_elsewhere
from lmperf.evidence.keys import METHOD_VERSION, code_of, is_fresh, row_key
from lmperf.evidence.syntax import canonical, digest
from lmperf.peers.table import PEERS
from lmperf.transformer.sizes import SIZES, ModelSize

SOURCE = Path(lmperf.__file__).parent
# Module that is left out of digests -> why it changes no number. The others are the method.
NO_NUMBERS = {
    "lmperf.errors": "describes errors in messages",
    "lmperf.own": "has no code of its own, only a docstring",
    **{
        f"lmperf.own.{path.stem}": "changes no number of the project's; rows of others count it"
        for path in (SOURCE / "own").glob("[!_]*.py")
    },
    "lmperf.names": "holds the words, order and look of names in reports",
    "lmperf.measuring": "has no code of its own, only a docstring",
    "lmperf.measuring.gpus": "names GPUs for the lock; which of equal ones measures is no matter",
    "lmperf.measuring.lock": "makes a run wait for another one; no effect once the lock is held",
    "lmperf.measuring.progress": "writes progress for a person, between slices",
}
# METHOD_VERSION and the digest of the measuring code that belongs to it. After an edit of that code
# put the new digest here; if the edit can change a number, raise METHOD_VERSION as well.
METHOD = (8, "4fbcdfc6d5c79325")


@cache
def parsed(text):
    return ast.parse(text)


@pytest.fixture(autouse=True)
def parse_once(monkeypatch):
    monkeypatch.setattr(closure, "tree_of", lambda path: parsed(path.read_bytes()))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    copy = tmp_path_factory.mktemp("sources") / "lmperf"
    return shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.csv"))


class Tree:
    """A copy of the lmperf package whose files can be edited during a test."""

    def __init__(self, root, monkeypatch, code_in):
        self.root, self._patch, self._code_in = root, monkeypatch, code_in

    def edit(self, path, old, new):
        """Replace the first occurrence of a text in a file; the file is restored after the test."""
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{path} no longer has {old!r}: the test needs another edit"
        self._patch.setattr(self, "restore", [*getattr(self, "restore", ()), (file, text)], False)
        file.write_text(text.replace(old, new, 1))

    def use(self):
        """Make `lmperf.evidence.keys` compute fingerprints from this copy of the package."""
        self._patch.setattr(keys, "closure_of", self._code_in(self.root).closure)

    def keys(self):
        """Return (stem, case, phase) -> key for each row of the default grids of all presets."""
        self.use()
        return keys_of_all_rows()


def keys_of_all_rows():
    found = {}
    for benchmark in map(load, stems()):
        codes = {one.name: code_of(benchmark, one.name) for one in benchmark.implementations}
        for case in cases_of(benchmark):
            for phase in benchmark.phases:
                row = {**case.axes, "implementation": case.implementation, "phase": phase}
                code = codes[case.implementation]
                key = row_key(benchmark, row, "environment", code=code)
                found[benchmark.stem, case, phase] = key
    return found


@pytest.fixture(scope="module")
def before():
    return keys_of_all_rows()


def cases_of(benchmark):
    return dict.fromkeys(case for preset in benchmark.grids for case in benchmark.cases(preset))


@pytest.fixture
def tree(sources, monkeypatch, code_in):
    made = Tree(sources, monkeypatch, code_in)
    yield made
    for file, text in reversed(getattr(made, "restore", [])):
        file.write_text(text)


def changed(before, after):
    """Return (stem, implementation) of the rows whose key in `after` differs from `before`."""
    assert before.keys() <= after.keys()
    return {
        (s, case.implementation) for (s, case, p), key in before.items() if after[s, case, p] != key
    }


def rows_of(*stems_, names=None):
    """Return (stem, implementation) of all rows of benchmarks, if given only those in `names`."""
    found = {(stem, case.implementation) for stem in stems_ for case in cases_of(load(stem))}
    return {(stem, name) for stem, name in found if names is None or name in names}


def declare(monkeypatch, stem, **attributes):
    for name, value in attributes.items():
        monkeypatch.setattr(type(load(stem)), name, value)


@pytest.mark.slow
def test_edits_make_their_own_benchmarks_stale(before, tree, monkeypatch):
    rungs = [
        replace(one, options={"dtype": "float32"}) if one.name == "fused_loss" else one
        for one in load("ladder_loss").implementations
    ]
    declare(monkeypatch, "ladder_loss", implementations=tuple(rungs))
    tree.edit("benchmarks/attention.py", 'together = ("dtype",)', "together = ()")
    method = "    def groups(self, cases):\n        return [[case] for case in cases]\n\n"
    tree.edit("benchmarks/lrpe.py", "    def prepare(", method + "    def prepare(")
    tree.edit("benchmarks/lrpe_check.py", "    is_check = True\n", "")
    tree.edit("benchmarks/flash_attention_check.py", "def inputs(", "def inputs(*_, ")
    assert changed(before, tree.keys()) == rows_of("ladder_loss", names=["fused_loss"]) | rows_of(
        "attention", "lrpe", "lrpe_check", "flash_attention_check"
    )


@pytest.mark.slow
def test_edits_that_change_no_number_make_nothing_stale(before, tree, monkeypatch):
    """A new rung, backend, size, dtype or part of a grid; unused constants; titles and words."""
    rung = '    Rung("graph", _AUTOCAST, "graph"),\n'
    tree.edit("transformer/rungs.py", rung, rung + '    Rung("new", "tf32", "sdpa"),\n')
    tree.edit("benchmarks/flash_attention_check.py", "\n\ndef ", "\n\n_UNUSED = 1\n\n\ndef ")
    monkeypatch.setitem(SIZES, "7B", ModelSize(4096, 16384, 32, 32, short="7B"))
    tree.edit("transformer/sizes.py", "SIZES = {\n", "SIZES = {\n    '7B': ModelSize(),\n")
    monkeypatch.setitem(DTYPES, "fp8", Dtype("fp8", "float16", "fp8"))
    tree.edit("dtypes.py", "DTYPES = {\n", "DTYPES = {\n    'fp8': Dtype('fp8', 'half', 'fp8'),\n")
    for old, new in {
        '    title = "Attention"\n': '    title = "A"\n',
        "    order = 40\n": "",
        '"error_dv")': '"error_dv", "error_lse")',
        'Axis("batch", int)': 'Axis("batch", int, most=8)',
    }.items():
        tree.edit("benchmarks/attention.py", old, new)
    tree.edit("names.py", '"compiled"', '"torch.compile"')
    stem = "flash_attention"
    grid = {**load(stem).grids["gpu"][-1], "seq_len": [2048]}
    declare(monkeypatch, stem, grids={**load(stem).grids, "gpu": [*load(stem).grids["gpu"], grid]})
    backend = Implementation("sdpa_math", "lmperf.attention.library:sdpa", {"backend": "MATH"})
    declare(monkeypatch, stem, implementations=(*load(stem).implementations, backend))
    tree.edit(
        "benchmarks/flash_attention.py", "OTHER_SHAPES = (", "OTHER_SHAPES = ((1, 16, 2048, 256), "
    )
    after = tree.keys()
    assert not changed(before, after)
    new = {case.axes["seq_len"] for of, case, _ in after.keys() - before.keys() if of == stem}
    assert new == {2048}


@pytest.mark.slow
def test_changed_numerics_of_dtype_make_its_rows_stale(before, monkeypatch):
    monkeypatch.setitem(DTYPES, "tf32", replace(DTYPES["tf32"], matmul="float32"))
    after = keys_of_all_rows()
    stale = {row for row, key in before.items() if after[row] != key}
    assert {case.axes["dtype"] for _, case, _ in stale} == {"tf32"}


@pytest.mark.slow
def test_edited_code_makes_only_its_callers_stale(before, tree):
    tree.edit("lrpe/inputs.py", "2**16", "2**17")
    jit = "@triton.jit(do_not_specialize=LENGTHS"
    tree.edit("attention/triton/forward.py", jit, f"{jit}, debug=1")
    found = changed(before, tree.keys())
    assert found == rows_of("flash_attention", names=["triton", "triton_deterministic"]) | rows_of(
        *("end_to_end", "profiles", "vocabulary"),
        names=[
            *("triton", "triton_compiled", "triton_compiled_blocks"),
            *("fused_loss", "fused_blocks", "fused_graph", "graph"),
            *("clipped_graph", "accumulated_graph", "stored_logits_graph", "fp8_graph"),
        ],
    ) | rows_of("flash_attention_check") | rows_of(
        "ladder_loss",
        names=[
            *("flash_attention", "fused_loss", "fused_blocks"),
            *("fused_graph", "graph", "bf16_weights", "bf16_graph", "fp8_graph"),
        ],
    ) | rows_of(
        *("distributed", "distributed_overlap"),
        names=["one_rank_graph", "overlapped_graph", "sharded_optimizer_graph"],
    ) | rows_of(
        *("leaderboard", "distributed_leaderboard", "distributed_timeline", "lrpe", "lrpe_check")
    )


def method_modules():
    """The modules that decide how numbers are measured, which `METHOD_VERSION` covers."""
    paths = [path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return {name for name in names if is_counted_elsewhere(name)} - NO_NUMBERS.keys()


def method_digest():
    files = [SOURCE.joinpath(*name.split(".")[1:]).with_suffix(".py") for name in method_modules()]
    return digest("\n".join(canonical(parsed(file.read_bytes())) for file in sorted(files)))


def test_left_out_modules_are_method_or_change_no_number():
    assert {"lmperf.benchmark", "lmperf.gate", "lmperf.measuring.clock"} <= method_modules()
    assert all(is_counted_elsewhere(name) for name in NO_NUMBERS)
    assert not [name for name in COUNTED_ELSEWHERE if name.startswith("lmperf.evidence")]
    assert all(len(reason.split()) > 3 for reason in NO_NUMBERS.values())


@pytest.mark.slow
def test_method_digest_matches_recorded_method_version():
    assert (METHOD_VERSION, method_digest()) == METHOD, "see the comment at METHOD in this file"


ATTENTION = Case(
    (("batch", 8), ("seq_len", 256), ("d_head", 16), ("dtype", "float32"), ("causal", False)),
    "mine",
)
ROW = {**ATTENTION.axes, "implementation": "mine", "phase": "forward"}
MINE = Implementation("mine", "lmperf.attention.reference:attention", origin="custom")


def key_of(implementation=MINE, environment="environment", **columns):
    benchmark = load("attention", {"mine": implementation})
    return row_key(benchmark, {**ROW, **columns}, environment)


@pytest.mark.parametrize(
    "other",
    [
        {"entry": "lmperf.attention.tiled:tiled_attention"},
        {"options": {"scale": 1}},
        {"tolerance": "rounded_scores"},
        {"version": "2.0"},
        {"compiles": True},
        {"needs_cuda": True},
        {"only": {"dtype": ("bfloat16",)}},
    ],
)
def test_key_covers_declaration_of_implementation(other):
    assert key_of(replace(MINE, **other)) != key_of()


def test_only_rows_of_others_cover_the_code_that_adapts_them(tree):
    before, ours = key_of(), key_of(replace(MINE, origin="project"))
    tree.edit("own/attention.py", "q.ndim == 3", "q.ndim < 4")
    tree.use()
    assert key_of() != before and key_of(replace(MINE, origin="project")) == ours


def test_key_ignores_other_supported_values():
    assert key_of(replace(MINE, only={"dtype": ("float32", "tf32")})) == key_of()


@pytest.mark.parametrize("column", [{"seq_len": 512}, {"dtype": "tf32"}, {"phase": "backward"}])
def test_key_covers_cell_and_phase(column):
    assert key_of(**column) != key_of()


def test_key_covers_benchmark_and_implementation_name():
    alias = replace(MINE, name="alias")
    benchmark = load("attention", {"mine": MINE, "alias": alias})
    other = type(benchmark)("other", benchmark.external)
    rows = [(benchmark, ROW), (benchmark, {**ROW, "implementation": "alias"}), (other, ROW)]
    assert len({row_key(of, row, "environment") for of, row in rows}) == 3


def test_key_covers_environment_and_method(monkeypatch):
    before = key_of()
    assert key_of(environment="another") != before
    monkeypatch.setattr(keys, "METHOD_VERSION", METHOD_VERSION + 1)
    assert key_of() != before


def test_axis_values_of_equal_meaning_share_a_key(monkeypatch):
    assert key_of(seq_len="256", causal="False") == key_of()
    same = Axis("dtype", str, ("float32", "single"), meaning=lambda name: "float32")
    axes = [same if axis.name == "dtype" else axis for axis in load("attention").axes]
    declare(monkeypatch, "attention", axes=tuple(axes))
    assert key_of(dtype="single") == key_of()


def test_row_with_unknown_implementation_or_value_is_not_fresh():
    benchmark = load("attention", {"mine": MINE})
    row = {**ROW, "key": key_of()}
    assert is_fresh(benchmark, row, "environment")
    assert not is_fresh(load("attention"), row, "environment")
    assert not is_fresh(benchmark, {**row, "dtype": "fp4"}, "environment")
    assert not is_fresh(benchmark, row, "another environment")


def test_declarations_name_attributes_of_benchmarks():
    known = {name for stem in stems() for name in dir(load(stem))}
    assert known >= DECLARATIONS


@pytest.mark.slow
def test_key_of_peer_covers_only_code_that_it_reaches(tree):
    tree.use()
    name = "fp8_tensorwise"
    benchmark = load("end_to_end", {name: PEERS[name].implementation})
    before = code_of(benchmark, name)
    tree.edit("peers/flash_attention_4.py", "\n\ndef ", "\n\n@anything\ndef ")
    tree.use()
    assert code_of(benchmark, name) == before
    tree.edit("peers/torchao.py", "\n\ndef ", "\n\n@anything\ndef ")
    tree.use()
    assert code_of(benchmark, name) != before
