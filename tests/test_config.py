"""Tests of valid configurations, and of the one-line messages for invalid ones."""

import json
import os
import unicodedata
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load as load_benchmark
from lmperf.benchmarks import stems
from lmperf.config import Config, json_schema, load_config, overrides_of, slug
from lmperf.errors import UserError

ROOT = Path(__file__).parents[1]
A_LOT = [*range(1, 102)]
CUSTOM = "implementations: {{lrpe: {{{}: 'a.b:c'}}}}"
SHELL = (
    "{{7*7}}",
    "$(touch x)",
    "`touch x`",
    "a|b",
    "<script>",
    "../x",
    "a/../b",
    "a\nb",
    "\u202eb",
)
INVALID_MACHINES = (
    *("report.md", "store", "a..b", ".a", "a.", "a/b", "-a", "A", "", "x" * 65, "x" * 10_000),
    *("größe", *SHELL),
)


def load(tmp_path, text, **overrides):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return load_config(path, overrides)


def test_shipped_configuration_is_valid():
    assert load_config(ROOT / "config/config.yaml").preset == "auto"


def test_committed_schema_is_up_to_date():
    assert (ROOT / "config/schema.json").read_text() == json_schema()


def test_empty_mapping_gives_defaults(tmp_path):
    config = load(tmp_path, "{}")
    assert "attention" in config.stems("cpu", "here")
    assert config.grid_of("attention") == {}


def test_grid_replaces_axis_values(tmp_path):
    config = load(tmp_path, "grid: {attention: {seq_len: [64, 128]}}")
    assert config.grid_of("attention") == {"seq_len": [64, 128]}


def test_grid_accepts_aliases_of_sizes(tmp_path):
    config = load(tmp_path, "grid: {end_to_end: {size: [small, xl-2026, 2.0B]}}")
    assert config.grid_of("end_to_end") == {"size": ["0.13B", "3.4B", "2.0B"]}
    size = json.loads(json_schema())["$defs"]["Grid_end_to_end"]["properties"]["size"]
    assert {"0.13B", "small", "xl-2025", "xl-2026"} <= {*size["anyOf"][0]["items"]["enum"]}


def test_command_line_overrides_file(tmp_path):
    assert load(tmp_path, "preset: gpu", preset="cpu").preset == "cpu"


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
    tolerances = [benchmark.tolerance_of(name) for name in ("one", "other", "eager")]
    assert tolerances == ["strict", "rounded_scores", "rounded_scores"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# nothing", "is empty; write {} for the defaults"),
        ("presets: cpu", "presets is not a known key; did you mean preset?"),
        ("colours: cpu", "colours is not a known key; known keys: preset, machine"),
        ("preset: fast", "preset is 'fast'; it must be 'auto', 'cpu', 'gpu', 'full' or 'quick'"),
        ("preset: cpu\npreset: gpu", ":2: preset: the key is there twice"),
        ("machine: Big Box", "machine is 'Big Box'; it must be a name of a-z, 0-9"),
        ("machine: no", ":1: machine: YAML reads no as False; write true or false, or quotes"),
        ("grid: {attention: {seq_len: [010]}}", "attention.seq_len: YAML reads 010 as 8"),
        ("grid: {attention: {seq_len: [1e4]}}", "seq_len: YAML reads 1e4 as a string"),
        ("grid: {attention: {seq_len: [1_024]}}", "seq_len: YAML reads 1_024 as 1024"),
        ("grid: {attention: {seq_len: [12:30]}}", "seq_len: YAML reads 12:30 as 750"),
        ("machine: 2026-11-21", "machine: YAML reads 2026-11-21 as a date; quote it"),
        ("grid: {attention: {seq_len: []}}", "grid.attention.seq_len is an empty list"),
        (
            "grid: {attention: {seq_len: [-1]}}",
            "seq_len.0 is -1; it must be greater than or equal to 1",
        ),
        ("grid: {attention: {seq_len: [1.5]}}", "seq_len.0 is 1.5; it must be a valid integer"),
        ("grid: {attention: {seq_len: 128}}", "seq_len is 128; it must be a list: [128]"),
        ("grid: {attention: {dtype: [fp8]}}", "dtype.0 is 'fp8'; it must be 'float32'"),
        (
            "grid: {memory: {size: [xl]}}",
            "size.0 is 'xl', which is ambiguous; write xl-2025 (2.0B) or xl-2026 (3.4B)",
        ),
        (
            "grid: {memory: {size: [huge]}}",
            "'huge'; it must be one of tiny, 0.13B (small), 0.42B (medium), 0.97B (large),"
            " 2.0B (xl-2025), 3.4B (2.7B, xl-2026), 12.8B (10B)",
        ),
        ("grid: {memory: {size: [small, 0.13B]}}", "grid.memory.size names '0.13B' twice"),
        ("grid: {memory: {size: [3]}}", "size.0 is 3; it must be a valid string"),
        ("grid: {attention: {causal: [1]}}", "causal.0 is 1; it must be a valid boolean"),
        ("grid: {attention: {length: [1]}}", "length is not a known key; axes: batch, seq_len"),
        ("grid: {attn: {seq_len: [1]}}", "grid.attn is not a known key; benchmarks: attention"),
        ("benchmarks: [attn]", "benchmarks.0 is 'attn'; it must be"),
        ("benchmarks: []", "benchmarks is an empty list"),
        ("benchmarks_by_machine: {box: [attn]}", "benchmarks_by_machine.box.0 is 'attn'; it must"),
        ("benchmarks_by_machine: {Big Box: [lrpe]}", "it must be a name of a-z, 0-9"),
        ("benchmarks: attention", "'attention'; it must be all, or a list of benchmarks: [attent"),
        ("benchmarks: [lrpe, lrpe]", "benchmarks names 'lrpe' twice; it must name each value once"),
        ("grid: {lrpe: {batch: [8, 1, 8]}}", "grid.lrpe.batch names 8 twice; it must name each"),
        ("grid: {lrpe: {batch: [99999999999999]}}", "it must be less than or equal to 2147483647"),
        (f"grid: {{lrpe: {{batch: [{'9' * 9999}]}}}}", "99999... is too long for a number"),
        (f"grid: {{lrpe: {{batch: {A_LOT}, heads: {A_LOT}}}}}", "grid.lrpe has 10,201 cells; it"),
        ("grid: 5", "grid is 5; it must be a mapping of keys to values"),
        ("grid:", "grid is null; it must be a mapping of keys to values"),
        (
            "implementations: {attention: {mine: my_pkg.f}}",
            "mine is 'my_pkg.f'; it must be a function as pack",
        ),
        ("implementations: {attention: {mine: 3}}", "mine is 3; it must be a valid string"),
        (
            "implementations: {attention: {mine: {use: f}}}",
            "mine.use is 'f'; it must be a function as",
        ),
        ("implementations: {attention: {mine: {}}}", "mine lacks the key use, which is required"),
        (
            "implementations: {attention: {mine: {use: 'a:b', tolerance: rounded_angles}}}",
            "tolerance is 'rounded_angles'; it must be 'strict' or 'rounded_scores'",
        ),
        (
            "implementations: {lrpe: {mine: {use: 'a:b', tolerance: loose}}}",
            "tolerance is 'loose'; it must be 'strict' or 'rounded_angles'",
        ),
        (
            "implementations: {ceilings: {mine: 'a:b'}}",
            "implementations.ceilings is not a known key; benchmarks that take one: attention, dis",
        ),
        (
            "implementations: {memory: {mine: {use: 'a:b', tolerance: loose}}}",
            "tolerance is 'loose'; it must be 'strict'",
        ),
        (
            "implementations: {attention: {mine: {use: 'a:b', dtype: float32}}}",
            "mine.dtype is not a known key; keys: use, tolerance",
        ),
        ("implementations: {attn: {}}", "implementations.attn is not a known key; benchmarks that"),
        ("implementations: [mine]", "is ['mine']; it must be a mapping of keys to values"),
        ("- preset", "must be a mapping of keys to values, is a list"),
        ("preset: [cpu", "not valid YAML"),
        ("preset: cpu\n---\npreset: gpu", ":2: not valid YAML: expected a single document"),
        ("preset: !!python/name:os.system", ":1: the tag tag:yaml.org,2002:python/name:os.system"),
        ("preset: !mine cpu", ":1: the tag !mine is not supported; write a plain value"),
        ("machine: !!int x", ":1: the tag tag:yaml.org,2002:int is not supported"),
        ("grid: &a {lrpe: *a}", ":1: a is an anchor or an alias, which is not supported"),
        ("\nmachine: *gone", ":2: gone is an anchor or an alias"),
        ("[1, 2]: x", ":1: top level: a key is a list; it must be a name"),
        ("grid: {{a: b}: x}", ":1: grid: a key is a mapping; it must be a name"),
        ("1: x", ":1: top level: a key is 1; it must be a name"),
        ("<<: {preset: cpu}", "YAML reads << as a merge; quote it"),
        ("machine: =", "YAML reads = as a value; quote it"),
        ("machine: 0x_", "YAML reads 0x_ as a number; write a decimal number"),
        ("grid: " + "[" * 3000 + "]" * 3000, ":1: values are nested deeper than 20"),
        ("grid: " + "{a: " * 3000 + "}" * 3000, ":1: values are nested deeper than 20"),
        ("# one\nmachine: 'a\0b'", ":2: not valid YAML: unacceptable character #x0000"),
        ("# " + "x" * 100_000, "is too long; it must have at most 100,000 bytes"),
        ("x" * 10_000 + ": 1", ":1: a key of 1,000 characters or more; a name has at most 64"),
        (CUSTOM.format("x" * 65), "it must have at most 64 characters"),
        (CUSTOM.format("x" * 10_000), ":1: a key of 1,000 characters or more"),
        (CUSTOM.format("Mine"), "Mine is 'Mine'; it must be a word of a-z, 0-9 and _ that begins"),
        ('"a\\nb": 1', "'a\\nb' is not a known key"),
    ],
)
def test_config_fault_is_described_in_one_line(tmp_path, text, words):
    with pytest.raises(UserError) as fault:
        load(tmp_path, text)
    message = str(fault.value)
    assert message.startswith(str(tmp_path / "config.yaml"))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("name", INVALID_MACHINES)
def test_paths_and_report_files_are_invalid_machine_names(tmp_path, name):
    text = json.dumps({"machine": name})
    for read in (lambda: load(tmp_path, text), lambda: load(tmp_path, "{}", machine=name)):
        with pytest.raises(UserError, match=r"machine is .*; it must be a name of a-z"):
            read()
    with pytest.raises(UserError, match=r"MACHINE is .*at most 64 characters, not store"):
        slug(name)


@pytest.mark.parametrize("name", ["nvidia-h200", "cpu-x_y", "2", "box.example.org", "x" * 64])
def test_valid_machine_names_are_accepted(tmp_path, name):
    assert load(tmp_path, "{}", machine=name).machine == slug(name) == name


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("machine: é".encode("latin-1"), ":1: is not UTF-8; save the file in UTF-8"),
        ("preset: cpu".encode("utf-16"), ":1: is not UTF-8"),
        (b"# a\n# b\n\xff", ":3: is not UTF-8"),
    ],
)
def test_invalid_utf8_is_reported_with_its_line(tmp_path, content, words):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=words):
        load_config(tmp_path / "config.yaml")


def test_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"\xef\xbb\xbfpreset: cpu\n")
    assert load_config(tmp_path / "config.yaml").preset == "cpu"


def test_directory_as_config_file_is_rejected(tmp_path):
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); it must be a YAML"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("stem", "shape"),
    [
        ("ceilings", "9" * 20),
        ("lrpe", "9" * 27),
        ("lrpe", "x".join(["999999999"] * 3)),
        ("lrpe_check", "65536x65536"),
    ],
)
def test_shape_of_more_elements_than_fit_is_refused(tmp_path, stem, shape):
    path = tmp_path / "config.yaml"
    path.write_text(f"grid: {{{stem}: {{shape: ['{shape}']}}}}")
    with pytest.raises(UserError, match=rf"grid.{stem}.shape.0 is .*; its product must be at most"):
        load_config(path)


def test_overrides_accept_numbers_and_flags_as_strings(tmp_path):
    config = load(
        tmp_path, "{}", grid={"attention": {"seq_len": ["64", "128"], "causal": ["true"]}}
    )
    assert config.grid_of("attention") == {"seq_len": [64, 128], "causal": [True]}
    for text in ("064", "6_4", "1e3", " 64", "٦"):
        with pytest.raises(UserError, match="must be a valid integer"):
            load(tmp_path, "{}", grid={"attention": {"seq_len": [text]}})


def test_fault_in_override_is_blamed_on_command_line(tmp_path):
    with pytest.raises(UserError, match=r"^command line: grid is 5; it must be a mapping"):
        load(tmp_path, "preset: cpu", grid=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["x"], "--config: must be KEY=VALUE, is 'x'"),
        (["=x"], "--config: must be KEY=VALUE"),
        (["preset=cpu", "preset=gpu"], "the key 'preset' is there twice"),
        (["grid={}", "grid.attention.seq_len=[1]"], "'grid' and 'grid.attention.seq_len' set the"),
        (["grid.lrpe.heads=[1]", "grid.lrpe={}"], "'grid.lrpe.heads' and 'grid.lrpe' set the same"),
        (["machine=[a"], "--config machine:1: not valid YAML"),
        (["machine=!!python/name:os.system x"], "the tag .* is not supported"),
        (["machine=" + "[" * 1000], "nested deeper than"),
        (["machine=" + "9" * 5000], "is too long for a number"),
        (["machine=" + "x" * 200_000], "is too long; it must have at most"),
        (["retry_failed=yes"], "YAML reads yes as True; write true or false"),
    ],
)
def test_overrides_are_read_as_strictly_as_the_file(given, words):
    with pytest.raises(UserError, match=words):
        overrides_of(given)


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


def test_missing_config_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


def test_json_schema_lists_every_axis():
    attention = json.loads(json_schema())["$defs"]["Grid_attention"]["properties"]
    assert {"batch", "seq_len", "d_head", "dtype", "causal", "implementation"} == set(attention)


names = st.one_of(
    st.sampled_from([*SHELL, *INVALID_MACHINES, "auto", *Config.model_fields, *stems(), "seq_len"]),
    st.text(max_size=80),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | names | st.dates()
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | leaves, inner, max_size=4),
    max_leaves=12,
)
near = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(Config.model_fields, values),
        "grid": st.dictionaries(names, st.dictionaries(names, values, max_size=2), max_size=2),
        "implementations": st.dictionaries(
            names, st.dictionaries(names, values, max_size=2), max_size=2
        ),
    },
)
LONG = int(os.environ.get("LMPERF_FAULTS", "0"))
many = settings(max_examples=LONG or 60, deadline=None, derandomize=not LONG, database=None)


def gives_configuration_or_one_line(read):
    try:
        assert isinstance(read(), Config)
    except UserError as error:
        line = str(error)
        assert line.isprintable() and 0 < len(line) < 500, line
        assert not any(unicodedata.category(c) == "Cf" for c in line)


@pytest.fixture(scope="module")
def a_file(tmp_path_factory):
    return Path(os.path.relpath(tmp_path_factory.mktemp("any") / "config.yaml"))


@many
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace")))
@example(b"? |\n" + b" " * 9000)
def test_any_bytes_give_configuration_or_one_line(a_file, content):
    a_file.write_bytes(content)
    gives_configuration_or_one_line(lambda: load_config(a_file))


@pytest.mark.slow
@many
@given(near | st.dictionaries(names, values, max_size=3), st.booleans())
def test_any_content_gives_configuration_or_one_line(a_file, content, flow):
    a_file.write_text(yaml.safe_dump(content, default_flow_style=flow, allow_unicode=True), "utf-8")
    gives_configuration_or_one_line(lambda: load_config(a_file))


def as_json(value):
    return json.dumps(value, default=str, skipkeys=True)


@pytest.mark.slow
@many
@given(near)
def test_any_overrides_give_configuration_or_one_line(a_file, content):
    a_file.write_text("{}")
    gives_configuration_or_one_line(lambda: load_config(a_file, content))
    gives_configuration_or_one_line(
        lambda: load_config(
            a_file,
            overrides_of(f"{key}={as_json(one)}" for key, one in content.items()),
        )
    )


@many
@given(names | st.text(alphabet="a.-_/\\m d0", max_size=70))
@example("a" * 10_000)
def test_any_valid_machine_name_is_a_folder_of_report(name):
    try:
        found = slug(name)
    except UserError as error:
        assert len(str(error)) < 500 and str(error).isprintable()
    else:
        path = Path("report") / found
        assert path.parent == Path("report") and found not in ("", ".", "..", "report.md")
        assert os.fsencode(found) == found.encode("ascii")


@pytest.mark.parametrize("key", ["retry_failed"])
def test_flag_may_be_the_word_that_snakemake_passes(tmp_path, key):
    (tmp_path / "config.yaml").write_text("{}")
    assert getattr(load_config(tmp_path / "config.yaml", {key: "true"}), key) is True
    with pytest.raises(UserError, match=f"{key} is 'yes'"):
        load_config(tmp_path / "config.yaml", {key: "yes"})
