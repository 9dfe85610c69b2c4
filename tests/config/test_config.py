"""Tests of valid configurations, and of the one-line messages for invalid ones."""

import json
from pathlib import Path

import pytest

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load as load_benchmark
from lmperf.config.machine_names import slug
from lmperf.config.read import config_of, load_config, overrides_of
from lmperf.config.schema import json_schema
from lmperf.errors import UserError
from lmperf.own.recorded import declared

ROOT = Path(__file__).parents[2]
CUSTOM = "implementations: {{attention: {{{}}}}}"


def load(tmp_path, text, **overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def axes_in_schema(stem):
    grids = json.loads(json_schema())["properties"]["grid"]["properties"]
    return grids[stem]["properties"]


def test_committed_schema_is_up_to_date():
    assert (ROOT / "config/schema.json").read_text() == json_schema()


def test_grid_accepts_aliases_of_sizes(tmp_path):
    config = load(tmp_path, "grid: {end_to_end: {size: [small, xl-2026, 2.0B]}}")
    assert config.grid_of("end_to_end") == {"size": ["0.13B", "3.4B", "2.0B"]}
    size = axes_in_schema("end_to_end")["size"]
    assert {"0.13B", "small", "xl-2025", "xl-2026"} <= {*size["items"]["enum"]}


def test_kernel_test_is_selected_with_its_benchmark(tmp_path):
    config = load(tmp_path, "benchmarks: [flash_attention]")
    assert config.stems("cpu", "here") == ["flash_attention_check", "flash_attention"]


def test_machine_may_have_a_list_of_benchmarks_of_its_own(tmp_path):
    text = "benchmarks_by_machine: {two-gpus: [memory], box: [lrpe]}"
    config = load(tmp_path, text)
    assert config.stems("cpu", "two-gpus") == ["memory"]
    assert "attention" in config.stems("cpu", "another")
    narrowed = load(tmp_path, text, benchmarks=["attention"])
    assert narrowed.stems("cpu", "two-gpus") == ["attention"]
    assert narrowed.stems("cpu", "two-gpus", here=False) == ["memory"]


def test_page_is_about_all_custom_implementations_or_the_chosen_ones(tmp_path):
    named = "{use: 'a.b:c', name: 'FlashAttention, 64 x 64 tiles'}"
    text = f"implementations: {{lrpe: {{first: {named}, second: 'a.b:d'}}}}"
    config = load(tmp_path, text)
    assert config.subjects("lrpe") == ["first", "second"] and not config.subjects("attention")
    assert config.names == {"first": "FlashAttention, 64 x 64 tiles"}
    assert load(tmp_path, text, subject={"lrpe": ["second"]}).subjects("lrpe") == ["second"]


def test_custom_implementation_is_an_entry_or_a_mapping(tmp_path):
    mapping = "{use: 'a.b:c', tolerance: rounded_scores}"
    text = f"implementations: {{attention: {{one: 'a.b:c', other: {mapping}}}}}"
    config = load(tmp_path, text)
    assert config.external("attention") == {
        "one": Implementation("one", "a.b:c", origin="custom"),
        "other": Implementation("other", "a.b:c", tolerance="rounded_scores", origin="custom"),
    }
    assert config.external("lrpe") == {}
    benchmark = load_benchmark("attention", config.external("attention"))
    tolerances = [benchmark.implementation(name).tolerance for name in ("one", "other", "eager")]
    assert tolerances == ["strict", "rounded_scores", "rounded_scores"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# nothing", "must be a mapping of keys to values; write {} for the defaults"),
        ("presets: cpu", "presets is not a known key; did you mean preset?"),
        ("palette: cpu", "palette is not a known key; known keys: preset, machine"),
        ("preset: fast", "preset is 'fast'; it must be 'auto', 'cpu', 'gpu', 'full' or 'quick'"),
        ("preset: cpu\npreset: gpu", ":2: not valid YAML: preset: the key is there twice"),
        ("report: ../elsewhere", "it must be the name of a folder, such as lmperf-report"),
        ("subject: {lrpe: [mine]}", "subject.lrpe names 'mine'; implementations has none for lrpe"),
        (
            "implementations: {lrpe: {mine: 'a:b'}}\nsubject: {lrpe: [mone]}",
            "subject.lrpe names 'mone'; did you mean mine?",
        ),
        (
            "implementations: {lrpe: {m: {use: 'a:b', name: x}}, attention: {m: 'a:b'}}",
            "implementations.attention.m.name is '', and 'x' in another benchmark",
        ),
        (
            'implementations: {lrpe: {m: {use: "a:b", name: "a\\nb"}}}',
            "name is 'a\\nb'; it must be one line of text",
        ),
        ("report: site", "site is 'site', which is the folder of the report; it must differ"),
        ("machine: Big Box", "machine is 'Big Box'; it must be a name of a-z, 0-9"),
        ("grid: {attention: {seq_len: [1e4]}}", "seq_len is '1e4'; it must be a valid integer"),
        ("grid: {attention: {seq_len: [12:30]}}", "seq_len is '12:30'; it must be a valid integer"),
        ("grid: {attention: {seq_len: [-1]}}", "-1; it must be greater than or equal to 1"),
        ("grid: {attention: {seq_len: []}}", "seq_len is []; it must have at least 1 item"),
        ("grid: {attention: {seq_len: 128}}", "seq_len is 128; it must be a valid list"),
        ("grid: {attention: {dtype: [fp8]}}", "dtype is 'fp8'; it must be one of float32, tf32"),
        ("grid: {memory: {size: [xl]}}", "ambiguous; write xl-2025 (2.0B) or xl-2026 (3.4B)"),
        ("grid: {memory: {size: [huge]}}", "'huge'; it must be one of tiny, 0.13B (small), 0.42B"),
        ("grid: {memory: {size: [small, 0.13B]}}", "grid.memory.size names '0.13B' twice"),
        ("grid: {attention: {causal: [2]}}", "causal is 2; it must be a valid boolean"),
        ("grid: {attention: {length: [1]}}", "length is not a known key; axes: batch, seq_len"),
        ("grid: {atention: {}}", "grid.atention is 'atention', which is not a benchmark; did you"),
        ("grid: {lrpe: {shape: [3y4]}}", "grid.lrpe.shape is '3y4'; it must match"),
        ("benchmarks: [attn]", "benchmarks.0 is 'attn', which is not a benchmark; benchmarks: at"),
        ("benchmarks: []", "benchmarks is []; it must be all, or a list of benchmarks: [attent"),
        ("benchmarks: attention", "'attention'; it must be all, or a list of benchmarks: [attent"),
        ("benchmarks_by_machine: {box: [attn]}", "benchmarks_by_machine.box.0 is 'attn', which"),
        (CUSTOM.format("mine: my_pkg.f"), "use is 'my_pkg.f'; it must be a function as package."),
        (CUSTOM.format("mine: {}"), "mine lacks the key use, which is required"),
        (CUSTOM.format("Mine: 'a:b'"), "Mine is 'Mine'; it must match pattern '^[a-z][a-z0-9_]*$'"),
        (
            CUSTOM.format("mine: {use: 'a:b', tolerance: rounded_angles}"),
            "tolerance is 'rounded_angles'; it must be strict or rounded_scores",
        ),
        (
            CUSTOM.format("mine: {use: 'a:b', tolerence: strict}"),
            "mine.tolerence is not a known key; did you mean tolerance?",
        ),
        (
            CUSTOM.format("mine: {use: 'a:b', compiled: true}"),
            "mine.compiled is true; attention takes no model, and only a model is compiled",
        ),
        (
            CUSTOM.format("mine: {use: 'a:b', model: own}"),
            "mine.model is 'own'; only a strategy or an optimizer trains one",
        ),
        (
            "implementations: {distributed: {mine: {use: 'a:b', model: own}}}",
            "mine.model is 'own'; implementations has none for end_to_end",
        ),
        (
            "implementations: {distributed: {m: {use: 'a:b', model: owm}}, end_to_end: {own: a:b}}",
            "m.model is 'owm'; implementations.end_to_end has own",
        ),
        (
            CUSTOM.format("mine: {use: 'a:b', tile: {q: 64}}"),
            "mine.tile is {'q': 64}; it must be a value, or a list of values",
        ),
        (
            CUSTOM.format("mine: {use: 'a:b', tile: [64]}, mine_64: 'a:b'"),
            "attention makes mine_64 twice; choose another name",
        ),
        (
            "implementations: {ceilings: {mine: 'a:b'}}",
            "implementations.ceilings is not a known key; benchmarks that take one: attention, dis",
        ),
        ("peers: [gpt3]", "peers.0 is 'gpt3'; it must be 'flash_attention_4', 'flash_"),
        ("peers: [fp8_tensorwise, fp8_tensorwise]", "peers names 'fp8_tensorwise' twice"),
        (
            "peers: fp8_tensorwise",
            "peers is 'fp8_tensorwise'; it must be true, false, or a list: [flash_attention_4, ",
        ),
        ("preset: [cpu", ":1: not valid YAML"),
        ("grid: {1: x}", "grid.1 is 1; it must be a valid string"),
        ('"a\\nb": 1', "a\\nb is not a known key"),
    ],
)
def test_config_fault_is_described_in_one_line(tmp_path, text, words):
    with pytest.raises(UserError) as fault:
        load(tmp_path, text)
    message = str(fault.value)
    assert message.startswith(str(tmp_path / "config.yaml"))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["a..b", "a/b", "-a", "A", "", "größe", "a\nb"])
def test_paths_are_invalid_machine_names(tmp_path, name):
    with pytest.raises(UserError, match=r"machine is .*; it must be a name of a-z"):
        load(tmp_path, json.dumps({"machine": name}))
    with pytest.raises(UserError, match=r"MACHINE is .*at most 64 characters"):
        slug(name)


@pytest.mark.parametrize("name", ["nvidia-h200", "cpu-x_y", "2", "box.example.org", "x" * 64])
def test_valid_machine_names_are_accepted(tmp_path, name):
    assert load(tmp_path, "{}", machine=name).machine == slug(name) == name


def test_only_utf8_is_read_with_or_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_bytes("machine: é".encode("latin-1"))
    with pytest.raises(UserError, match="not valid YAML: unacceptable character #x00e9"):
        load_config(path)
    path.write_bytes(b"\xef\xbb\xbfpreset: cpu\n")
    assert load_config(path).preset == "cpu"


def test_overrides_accept_numbers_and_flags_as_strings(tmp_path):
    config = load(
        tmp_path, "{}", grid={"attention": {"seq_len": ["64", "128"], "causal": ["true"]}}
    )
    assert config.grid_of("attention") == {"seq_len": [64, 128], "causal": [True]}
    config = load(tmp_path, "{}", retry_failed="true", peers="false")
    assert config.retry_failed is True and config.peers is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("x", "--config: must be KEY=VALUE, is 'x'"),
        ("=x", "--config: must be KEY=VALUE"),
        ("machine=[a", "--config machine:1: not valid YAML"),
        ("grid={lrpe: {}, lrpe: {}}", "lrpe: the key is there twice"),
    ],
)
def test_invalid_override_is_refused_in_one_line(given, words):
    with pytest.raises(UserError, match=words):
        overrides_of([given])


def test_dotted_override_replaces_one_nested_value(tmp_path):
    text = "grid: {attention: {seq_len: [64], d_head: [16]}, lrpe: {heads: [2]}}"
    overrides = overrides_of(["grid.attention.seq_len=[128, 256]", "grid.lrpe={}", "preset=cpu"])
    config = load(tmp_path, text, **overrides)
    assert config.grid_of("attention") == {"seq_len": [128, 256], "d_head": [16]}
    assert config.grid_of("lrpe") == {} and config.preset == "cpu"
    overrides = overrides_of(["implementations.attention.mine=a.b:c"])
    assert load(tmp_path, "{}", **overrides).external("attention") == {
        "mine": Implementation("mine", "a.b:c", origin="custom")
    }


@pytest.mark.parametrize(
    ("text", "key", "source"),
    [
        ("{}", "grid.attention.seq_len=[0]", "command line"),
        ("{}", "implementations.attention.mine.use=x", "command line"),
        ("grid: {attention: {d_head: [0]}}", "grid.attention.seq_len=[64]", r"config\.yaml"),
        ("grid: 3", "grid.attention.seq_lens=[64]", "command line"),
    ],
)
def test_source_of_fault_is_file_or_command_line(tmp_path, text, key, source):
    with pytest.raises(UserError, match=f"{source}: (grid|implementations)"):
        load(tmp_path, text, **overrides_of([key]))


def test_compiled_model_is_one_more_implementation():
    given = {"use": "a.b:Model", "heads": [1, 2], "compiled": True}
    of = {"end_to_end": {"own": given, "step": "a.b:step"}, "distributed": {"ddp": "a.b:wrap"}}
    config = config_of({"implementations": of}, Path("c.yaml"), {})
    made = config.external("end_to_end", {})
    assert {name for name, one in made.items() if one.to_compile} == {
        "own_1_compiled",
        "own_2_compiled",
    }
    assert config.names == {f"own_{heads}_compiled": f"own, {heads}, compiled" for heads in (1, 2)}
    assert [name for name, *_ in config.external("distributed", {})["ddp"].models] == [
        *("own_1", "own_2", "step"),
        "",
    ]
    assert not any(one.models for one in made.values())
    of["distributed"]["ddp"] = {"use": "a.b:wrap", "model": "own_2"}
    config = config_of({"implementations": of}, Path("c.yaml"), {})
    wanted = (("own_2", "a.b:Model", {"heads": 2}),)
    assert config.external("distributed", {})["ddp"].models == wanted


def test_missing_config_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_values_in_brackets_make_an_implementation_each():
    given = {"use": "a.b:get_ddp", "bucket_size_mb": [1, 10, 0.5], "overlaps": True}
    config = config_of({"implementations": {"distributed": {"buckets": given}}}, Path("c.yaml"), {})
    made = config.external("distributed", {})
    assert {name: dict(one.options) for name, one in made.items()} == {
        f"buckets_{name}": {"bucket_size_mb": size, "overlaps": True}
        for name, size in (("1", 1), ("10", 10), ("0_5", 0.5))
    }
    facts = [{"implementations": json.loads(json.dumps(config.declarations()))}]
    assert declared(facts, "distributed") == made and not declared(facts, "end_to_end")
