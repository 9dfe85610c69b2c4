"""Tests of `lmperf add`, which shows the evidence of another repository as another machine."""

import json
import shutil

import pytest

from lmperf.config import load_config
from lmperf.evidence.facts import read_facts, write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.record import record
from lmperf.evidence.review import review
from lmperf.evidence.store import write_signed

CUSTOM = "implementations: {flash_attention: {theirs: 'their_functions:attention'}}\n"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """`report/there` of another person, with one custom implementation."""
    folder = tmp_path_factory.mktemp("another")
    with pytest.MonkeyPatch.context() as patch:
        made = _measured(folder, patch)
    return made  # their module cannot be found any more


def _measured(folder, patch):
    from configurations import FLASH_ATTENTION

    (folder / "config").mkdir()
    config = folder / "config/config.yaml"
    config.write_text(FLASH_ATTENTION.replace("machine: here", "machine: there") + CUSTOM)
    module = "def attention(q, k, v, causal=False):\n    return v\n"
    (folder / "their_functions.py").write_text(module)
    patch.syspath_prepend(str(folder))

    def measure(benchmark, groups, device, save, *_):
        about = {"status": "unsupported", "reason": "not here", "seed": 1}
        for group in groups:
            cases = [{**c.axes, "implementation": c.implementation, **about} for c in group]
            save([{**case, "phase": phase} for case in cases for phase in benchmark.phases], {})

    patch.setattr("lmperf.evidence.record.measure", measure)
    project = Project(load_config(config), folder)
    record(project, project.plan("flash_attention"))
    (folder / "report/there/report.md").write_text("their words")
    return folder / "report/there"


@pytest.fixture
def theirs(measured, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "there"
    shutil.copytree(measured, copy)
    return copy


@pytest.fixture
def rendered(monkeypatch):
    found = []
    monkeypatch.setattr("lmperf.commands.report.render", lambda project, name: found.append(name))
    return found


def files(root):
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


@pytest.mark.slow
def test_evidence_is_added_and_rendered_as_another_machine(folder, lmperf, theirs, rendered):
    code, out, _ = lmperf("add", str(theirs))
    assert code == 0 and out.startswith("report/there\n") and rendered == ["there", None]
    added = files(folder / "report/there")
    assert "evidence/flash_attention.csv" in added and "report.md" not in added
    assert not [name for name in added if name.startswith("store")]
    project = Project(load_config(folder / "config/config.yaml"), folder)
    found = review(project, "there")
    names = {row["implementation"] for row in found.rows["flash_attention"]}
    assert names == {"eager", "sdpa", "theirs"} and not found.damaged | found.lost
    stale = found.stale["flash_attention"]
    assert stale and all("theirs" in name for name in stale), "their code is not here"


def test_name_is_the_one_that_the_user_gives(folder, lmperf, theirs, rendered):
    facts = read_facts(theirs, "there")
    write_facts(theirs, facts | {"allowed": {"reason": "a", "rows": 1, "of": "b", "at": "c"}})
    assert lmperf("add", str(theirs), "--as", "lab-7")[0] == 0 and rendered == ["lab-7", None]
    expected = facts | {"machine": "lab-7"}
    assert read_facts(folder / "report/lab-7", "lab-7") == expected, "no permission to publish"


def test_existing_machine_is_replaced_only_on_request(folder, lmperf, theirs, rendered):
    assert lmperf("add", str(theirs))[0] == 0
    (folder / "report/there/mine.txt").write_text("x")
    code, _, said = lmperf("add", str(theirs))
    assert code == 2 and "report/there exists; replace it with --replace" in said
    assert (folder / "report/there/mine.txt").exists()
    assert lmperf("add", str(theirs), "--replace")[0] == 0
    assert not (folder / "report/there/mine.txt").exists()


def test_evidence_of_this_machines_name_is_refused(folder, lmperf, theirs, rendered):
    code, _, said = lmperf("add", str(theirs), "--as", "here")
    assert code == 2 and "here is the name of this machine" in said and not rendered


def edited(path):
    path.write_text(path.read_text().replace("not here", "elsewhere", 1))


def unsigned(path):
    path.with_suffix(".sha256").unlink()


def forged(path):
    write_signed(path, path.read_bytes().replace(b"unsupported", b"ok", 1))


def linked(path):
    path.rename(path.with_suffix(".txt"))
    path.symlink_to(path.with_suffix(".txt"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (edited, "was edited or truncated: it does not match its digest"),
        (unsigned, "has no digest"),
        (forged, "row 1 "),
        (linked, "is not a plain file"),
    ],
)
def test_each_faulty_file_is_named_and_nothing_is_added(
    folder, lmperf, theirs, rendered, change, why
):
    change(theirs / "evidence/flash_attention.csv")
    write_signed(theirs / "evidence/unheard_of.csv", b"a\n1\n")
    code, out, said = lmperf("add", str(theirs))
    lines = said.splitlines()
    assert code == 2 and not out and not rendered and not (folder / "report/there").exists()
    assert len([line for line in lines if why in line]) == 1
    assert all(line.startswith("lmperf: ") for line in lines) and "/tmp/tmp" not in said
    if change is not linked:
        assert len(lines) == 2
        assert f"{theirs}/evidence/unheard_of.csv is of no benchmark of this version" in said


@pytest.mark.parametrize("name", ["../up", "report.md", 7, None])
def test_folder_without_a_valid_machine_is_refused(folder, lmperf, theirs, name):
    content = json.loads((theirs / "machine.json").read_text()) | {"machine": name}
    write_signed(theirs / "machine.json", json.dumps(content).encode())
    code, _, said = lmperf("add", str(theirs))
    assert code == 2 and said.count("\n") == 1 and "cannot be that of a machine" in said
    (theirs / "machine.json").unlink()
    code, _, said = lmperf("add", str(theirs))
    assert code == 2 and "give the folder report/<machine> of a clone" in said
