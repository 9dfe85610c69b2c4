"""What is here, what is not, and what to do about it."""

from lmperf.commands import doctor


def test_what_each_section_needs_is_said(lmperf):
    code, out, _ = lmperf("doctor")
    assert code == 0
    lines = out.splitlines()
    assert any(line.startswith("ok") and "torch" in line for line in lines)
    assert "ok      flash_attention: 2 cases" in lines
    assert "absent  lrpe: the configuration leaves it out; add it to benchmarks" in lines


def test_without_torch_or_a_compiler_it_is_said_how_to_get_them(lmperf, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    out = lmperf("doctor")[1]
    assert "C++ compiler: what is compiled needs one on a CPU; install g++" in out
    assert "install git" in out
    monkeypatch.setattr(doctor, "torch_version", lambda: None)
    code, out, _ = lmperf("doctor")
    assert code == 1 and "wrong   torch: nothing is measured without it" in out


def test_a_function_of_ones_own_that_cannot_be_called_is_wrong(folder, lmperf):
    config = folder / "config/config.yaml"
    own = "implementations: {flash_attention: {%s}}\n"
    uses = "mine: 'own_of_commands:attention', other: 'own_of_commands:absent'"
    config.write_text(config.read_text() + own % uses)
    code, out, _ = lmperf("doctor")
    assert code == 1
    assert "ok      flash_attention, mine: own_of_commands:attention" in out
    assert "wrong   flash_attention, other: own_of_commands:absent: the module" in out


def test_a_configuration_that_cannot_be_planned_is_a_line_among_the_others(lmperf):
    code, out, _ = lmperf("doctor", "--config", "implementations.flash_attention.mine=own_gone:x")
    assert code == 1
    lines = [line for line in out.splitlines() if line.startswith("wrong")]
    assert len(lines) == 1 and "there is no module own_gone" in lines[0]
    assert "flash_attention_check: " in out
