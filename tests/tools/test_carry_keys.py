"""Keys are carried over a change of names, and over nothing else."""

import pytest
from carry_keys import carry, differing, read_renames
from meaning import Tree, meaning_of

from lmperf.benchmark import Axis, Benchmark
from lmperf.evidence.keys import METHOD_VERSION, row_key_of
from lmperf.evidence.store import Evidence

OLD = {
    "__init__": "",
    "bench": '''
class Softmax:
    """What is timed."""
    title = "Softmax"
    implementations = {"eager": "tiny.kernel:softmax"}

    def prepare(self):
        from tiny.kernel import softmax
        from tiny.tuning import inputs
        return softmax(inputs())
''',
    "kernel": '''
from tiny import sizes

SHOWN = ("kernel.py", "other.py")

def softmax(x):
    """exp(x) / sum exp(x)."""
    return scaled(x) / sizes.WIDTH

def scaled(x):
    return 2 * x

def unused(x):
    return x
''',
    "sizes": "WIDTH = 64\n",
    "tuning": """
LENGTH = 8

def inputs():
    return LENGTH

def search():
    print(inputs())

if __name__ == "__main__":
    search()
""",
}
RENAMED = {
    "tiny.kernel": "tiny.kernels.softmax",
    "tiny.sizes": "tiny.kernels.sizes",
    "tiny.tuning:inputs": "tiny.kernels.variants:inputs",
    "tiny.tuning:LENGTH": "tiny.kernels.variants:LENGTH",
}
NEW = {
    "__init__": "",
    "bench": OLD["bench"]
    .replace("tiny.kernel", "tiny.kernels.softmax")
    .replace("tiny.tuning", "tiny.kernels.variants"),
    "kernels/__init__": '"""Kernels."""\n',
    "kernels/softmax": OLD["kernel"]
    .replace("from tiny import sizes", "from tiny.kernels.sizes import WIDTH")
    .replace("sizes.WIDTH", "WIDTH")
    .replace('"kernel.py"', '"kernels/softmax.py"')
    .replace("def unused(x):\n    return x\n", ""),
    "kernels/sizes": OLD["sizes"],
    "kernels/variants": "LENGTH = 8\n\ndef inputs():\n    return LENGTH\n",
}


def written(root, modules):
    for name, source in modules.items():
        path = root / "tiny" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def differences(tmp_path, changed):
    old = Tree(written(tmp_path / "old", OLD), "tiny", RENAMED)
    new = Tree(written(tmp_path / "new", {**NEW, **changed}), "tiny")
    return differing(old, new, "tiny.bench")


def test_moved_renamed_and_split_modules_mean_the_same(tmp_path):
    assert differences(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("module", "before", "after", "differs"),
    [
        ("kernels/softmax", "2 * x", "3 * x", "tiny.kernels.softmax:scaled"),
        ("kernels/softmax", "scaled(x) /", "x /", "tiny.kernels.softmax:softmax"),
        ("kernels/sizes", "64", "128", "tiny.kernels.sizes:WIDTH"),
        ("kernels/variants", "LENGTH = 8", "LENGTH = 9", "tiny.kernels.variants:LENGTH"),
        ("kernels/__init__", '"""Kernels."""', "import os; os.nice(1)", "tiny.kernels"),
        ("bench", "softmax(inputs())", "inputs()", "tiny.bench:Softmax"),
        ("bench", "from tiny.kernels.softmax", "from tiny.kernels.sizes", "tiny.bench:Softmax"),
    ],
)
def test_an_edit_is_found_and_named(tmp_path, module, before, after, differs):
    assert before in NEW[module]
    assert differs in differences(tmp_path, {module: NEW[module].replace(before, after)})


def test_words_declarations_and_what_nothing_reaches_do_not_count(tmp_path):
    bench = NEW["bench"].replace('"Softmax"', '"Another"').replace("What is timed.", "Timed.")
    variants = NEW["kernels/variants"] + "\ndef search():\n    print(1)\n"
    assert differences(tmp_path, {"bench": bench, "kernels/variants": variants}) == []


def test_what_a_module_reaches_is_named_as_in_the_other_tree(tmp_path):
    found = meaning_of(Tree(written(tmp_path, OLD), "tiny", RENAMED), "tiny.bench")
    assert set(found) == {
        "tiny.bench:Softmax",
        "tiny.kernels.sizes:WIDTH",
        "tiny.kernels.softmax:scaled",
        "tiny.kernels.softmax:softmax",
        "tiny.kernels.variants:LENGTH",
        "tiny.kernels.variants:inputs",
    }


class Softmax(Benchmark):
    axes = (Axis("seq_len", int),)


def row(seq_len, fingerprint):
    columns = {"seq_len": seq_len, "implementation": "eager", "phase": "forward"}
    key = row_key_of((fingerprint, METHOD_VERSION), "softmax", columns, ["seq_len"], "here")
    return {**columns, "median_ms": 0.1 + 0.2, "environment": "here", "key": key}


@pytest.fixture
def evidence(tmp_path):
    """Two rows that are fresh under the fingerprint `old`, and one that was stale before."""
    identity = ("seq_len", "implementation", "phase")
    evidence = Evidence(tmp_path / "softmax.csv", identity, identity)
    evidence.replace([row(128, "old"), row(256, "an older one"), row(512, "old")])
    return evidence


def test_fresh_rows_get_the_new_key_and_stale_ones_stay_stale(evidence):
    before = evidence.read()
    found = carry(evidence, Softmax("softmax"), ("old", "new"), [])
    assert (found.carried, found.stale) == (2, 1)
    keys = [row(128, "new")["key"], before[1]["key"], row(512, "new")["key"]]
    assert evidence.read() == [{**was, "key": key} for was, key in zip(before, keys, strict=True)]
    again = carry(evidence, Softmax("softmax"), ("old", "new"), [])
    assert (again.carried, again.stale) == (0, 1)


def test_nothing_is_carried_where_anything_differs(evidence):
    before = evidence.path.read_bytes()
    found = carry(evidence, Softmax("softmax"), ("old", "new"), ["tiny.kernel:scaled"])
    assert (found.carried, found.stale) == (0, 3)
    assert evidence.path.read_bytes() == before


def test_renames_are_read_by_line(tmp_path):
    path = tmp_path / "renames.txt"
    path.write_text("# why\na.b a.c\n\na.b:f a.d:g\n")
    assert read_renames(path) == {"a.b": "a.c", "a.b:f": "a.d:g"}
