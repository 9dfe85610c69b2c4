"""What the configuration accepts, and the one line it says of what it does not."""

import json
from pathlib import Path

import pytest

from lmperf.benchmark import Own
from lmperf.benchmark import load as load_benchmark
from lmperf.config import json_schema, load_config
from lmperf.errors import UserError

ROOT = Path(__file__).parents[1]


def load(tmp_path, text, **overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def test_the_shipped_configuration_is_valid():
    assert load_config(ROOT / "config/config.yaml").preset == "auto"


def test_the_exported_schema_is_that_of_the_model():
    assert (ROOT / "config/schema.json").read_text() == json_schema()


def test_a_file_without_keys_is_the_default(tmp_path):
    config = load(tmp_path, "{}")
    assert "attention" in config.stems("cpu")
    assert config.grid_of("attention") == {}


def test_axes_of_the_grid_are_replaced(tmp_path):
    config = load(tmp_path, "grid: {attention: {seq_len: [64, 128]}}")
    assert config.grid_of("attention") == {"seq_len": [64, 128]}


def test_command_line_values_go_before_the_file(tmp_path):
    assert load(tmp_path, "preset: gpu", preset="cpu").preset == "cpu"


def test_a_benchmark_brings_its_kernel_test(tmp_path):
    config = load(tmp_path, "benchmarks: [flash_attention]")
    assert config.stems("cpu") == ["flash_attention", "flash_attention_check"]


def test_an_own_implementation_is_a_function_or_a_mapping_that_declares_its_numerics(tmp_path):
    mapping = "{use: 'a.b:c', numerics: rounded_scores}"
    text = f"implementations: {{attention: {{one: 'a.b:c', other: {mapping}}}}}"
    config = load(tmp_path, text)
    assert config.own("attention") == {"one": Own("a.b:c"), "other": Own("a.b:c", "rounded_scores")}
    assert config.own("lrpe") == {}
    benchmark = load_benchmark("attention", config.own("attention"))
    numerics = [benchmark.numerics_of(name) for name in ("one", "other", "eager")]
    assert numerics == ["strict", "rounded_scores", "rounded_scores"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# nothing", "is empty; write {} for what is there by default"),
        ("presets: cpu", "presets is not a known key; known keys: preset, machine"),
        ("preset: fast", "preset is 'fast'; it must be 'auto', 'cpu' or 'gpu'"),
        ("preset: cpu\npreset: gpu", ":2: preset: the key stands twice"),
        ("machine: Big Box", "machine is 'Big Box'; it must match pattern"),
        ("machine: no", ":1: machine: YAML reads no as False; write true or false, or quotes"),
        ("grid: {attention: {seq_len: [010]}}", "attention.seq_len: YAML reads 010 as 8"),
        ("grid: {attention: {seq_len: [1e4]}}", "seq_len: YAML reads 1e4 as a string"),
        ("grid: {attention: {seq_len: [1_024]}}", "seq_len: YAML reads 1_024 as 1024"),
        ("grid: {attention: {seq_len: [12:30]}}", "seq_len: YAML reads 12:30 as 750"),
        ("machine: 2026-11-21", "machine: YAML reads 2026-11-21 as a date; quote it"),
        ("grid: {attention: {seq_len: []}}", "grid.attention.seq_len is an empty list"),
        ("grid: {attention: {seq_len: [-1]}}", "seq_len.0 is -1; it must be greater than 0"),
        ("grid: {attention: {seq_len: [1.5]}}", "seq_len.0 is 1.5; it must be a valid integer"),
        ("grid: {attention: {seq_len: 128}}", "seq_len is 128; it must be a valid list"),
        ("grid: {attention: {dtype: [fp8]}}", "dtype.0 is 'fp8'; it must be 'float32'"),
        ("grid: {attention: {causal: [1]}}", "causal.0 is 1; it must be a valid boolean"),
        ("grid: {attention: {length: [1]}}", "length is not a known key; axes: batch, seq_len"),
        ("grid: {attn: {seq_len: [1]}}", "grid.attn is not a known key; benchmarks: attention"),
        ("benchmarks: [attn]", "benchmarks.0 is 'attn'; it must be"),
        ("benchmarks: []", "benchmarks is an empty list"),
        ("implementations: {attention: {mine: my_pkg.f}}", "mine is 'my_pkg.f'; it must match"),
        ("implementations: {attention: {mine: 3}}", "mine is 3; it must be a valid string"),
        ("implementations: {attention: {mine: {use: f}}}", "mine.use is 'f'; it must match"),
        ("implementations: {attention: {mine: {}}}", "mine lacks the key use, which must be there"),
        (
            "implementations: {attention: {mine: {use: 'a:b', numerics: rounded_angles}}}",
            "numerics is 'rounded_angles'; it must be 'strict' or 'rounded_scores'",
        ),
        (
            "implementations: {lrpe: {mine: {use: 'a:b', numerics: loose}}}",
            "numerics is 'loose'; it must be 'strict' or 'rounded_angles'",
        ),
        (
            "implementations: {memory: {mine: {use: 'a:b', numerics: loose}}}",
            "numerics is 'loose'; it must be 'strict'",
        ),
        (
            "implementations: {attention: {mine: {use: 'a:b', dtype: float32}}}",
            "mine.dtype is not a known key; keys: use, numerics",
        ),
        ("implementations: {attn: {}}", "implementations.attn is not a known key; benchmarks: att"),
        ("implementations: [mine]", "is ['mine']; it must be a mapping of keys to values"),
        ("- preset", "must be a mapping of keys to values, is a list"),
        ("preset: [cpu", "not valid YAML"),
    ],
)
def test_a_fault_is_one_line_that_names_it(tmp_path, text, words):
    with pytest.raises(UserError) as fault:
        load(tmp_path, text)
    message = str(fault.value)
    assert message.startswith(str(tmp_path / "config.yaml"))
    assert words in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_the_schema_names_every_axis_for_editors():
    attention = json.loads(json_schema())["$defs"]["Grid_attention"]["properties"]
    assert {"batch", "seq_len", "d_head", "dtype", "causal", "implementation"} == set(attention)
