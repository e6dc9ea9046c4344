"""Whatever is wrong in a configuration is said in one line that names the key, the value and what is allowed."""

import copy
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deltap.cli import settings
from deltap.errors import DeltapError
from deltap.run import Run, definition, definitions
from deltap.settings import (
    FIGURE_KINDS,
    DatasetEntry,
    FigureEntry,
    LlmSettings,
    ModelEntry,
    RunSettings,
    Server,
    mistakes,
)
from deltap.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
NAN = float("nan")
VALUES = (None, True, False, -1, 0, 1, 7, 0.5, -2.5, NAN, float("inf"), 10**30, "", "x", "No Name", "../x", [], [None],
          [-1], [True], ["x"], ["x", "x"], [{}], {}, {"x": 1}, {"x": {}}, {1: 2})  # fmt: skip


def whole(kind, /, **given):
    """Return every key of a class with its default, as YAML gives it."""
    return kind.model_validate(given).model_dump(mode="json")


SERVER = Server(url="http://localhost:8000/v1", model="m")
NEEDED = {"controls": {"statistic": "gap"}}
KINDS = {
    "run": (RunSettings, whole(RunSettings, run="r", models=["m"], datasets=["d"], llm=LlmSettings(server=SERVER),
                               controls={"interventions": {"heads": {"layers": [1]}}})),
    "model": (ModelEntry, whole(ModelEntry, label="M", source={"hub": "x/y"}, kind="chat", prompt={}, max_memory=None,
                                shape=dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "head_dim",
                                                     "intermediate", "vocabulary"), 8))),
    "dataset": (DatasetEntry, whole(DatasetEntry, label="D", path="x", columns={"subject": "s"}, types=["a"],
                                    popularity={"min": 1}, ids=["1"])),
    **{f"figure {name}": (kind, whole(kind, kind=name, tables=["x"], **NEEDED.get(name, {})))
       for name, kind in FIGURE_KINDS.items()},
}  # fmt: skip


def resolved(schema, root):
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def places(schema, value, root, at=()):
    """Yield the place of every value inside ``value``, with the schema of what is allowed there."""
    schema = resolved(schema, root)
    if at:
        yield at, schema
    options = [resolved(option, root) for option in schema.get("anyOf", [schema])]
    if isinstance(value, dict):
        for option in options:
            for key, inner in option.get("properties", {}).items():
                if key in value:
                    yield from places(inner, value[key], root, (*at, key))
            if isinstance(option.get("additionalProperties"), dict):
                for key in value:
                    yield from places(option["additionalProperties"], value[key], root, (*at, key))
    if isinstance(value, list) and value:
        for option in options:
            if "items" in option:
                yield from places(option["items"], value[0], root, (*at, 0))


def changed(values, at, value):
    values = copy.deepcopy(values)
    inner = values
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return values


def lines(kind, values):
    try:
        kind.model_validate(values)
    except ValidationError as error:
        return mistakes(error, kind)
    return []


def is_finite(value):
    return not isinstance(value, float) or value - value == 0


@pytest.mark.parametrize("name", KINDS)
def test_a_wrong_value_of_any_key_is_named_with_what_is_allowed(name):
    kind, values = KINDS[name]
    schema = kind.model_json_schema()
    assert lines(kind, values) == []
    tried = 0
    for at, allowed in places(schema, values, schema):
        # Keys that may be 0 or 1 of a truth value's are told from it; JSON Schema does the same.
        check = jsonschema.Draft202012Validator({**allowed, "$defs": schema.get("$defs", {})})
        for value in VALUES:
            found = lines(kind, changed(values, at, value))
            key = ".".join(map(str, at))
            try:
                valid = check.is_valid(value) and is_finite(value)
            except TypeError:  # a mapping whose keys are no texts
                valid = False
            if not valid and not any(_spells(value, allowed, schema)):
                tried += 1
                assert found, f"{key}: {value!r} is accepted"
                mine = [line for line in found if line.startswith((key, f"{key.removesuffix('.0')}: "))]
                assert mine, (key, value, found)
                assert any(re.search("expected|listed twice|unknown key|missing|should be", line) for line in mine), (
                    value,
                    mine,
                )
            # All of one line each, whatever is wrong.
            assert all("\n" not in line and re.match(r"[\w. \[\]-]+: ", line) for line in found), found
            assert all(
                re.search(r"\(found: .+\)|unknown key.*\(valid: .+\)|missing; expected .+", line) for line in found
            )
            assert len({line.split(": ")[0] for line in found}) == len(found) or "unknown key" in str(found), found
    assert tried > 50


def _spells(value, allowed, root):
    """Yield reasons why a value that the JSON Schema does not know is right nevertheless."""
    options = [resolved(option, root) for option in (allowed, *allowed.get("anyOf", []))]
    # A figure's table may be a path alone, a palette a list of one, which the classes turn into what the schema says.
    yield from (isinstance(value, str) and "path" in option.get("properties", {}) for option in options)
    yield from (isinstance(value, str) and "TableSource" in str(option) for option in options)
    yield from (isinstance(value, dict | list) and "TableSource" in str(option) for option in options)
    yield from (isinstance(value, int) and option.get("type") == "boolean" and value in (0, 1) for option in options)


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_key_is_named_with_what_is_expected(name):
    kind, values = KINDS[name]
    required = [key for key, field in kind.model_fields.items() if field.is_required()]
    assert required or name == "figure delta_p"
    for key in required:
        found = lines(kind, {other: value for other, value in values.items() if other != key})
        assert len(found) == 1
        assert re.fullmatch(rf"{key}: missing; expected .+", found[0])


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_a_mistyped_key_anywhere_is_named_with_the_nearest_one(name, data):
    kind, values = KINDS[name]
    schema = kind.model_json_schema()
    every = [at for at, _ in places(schema, values, schema) if isinstance(at[-1], str)]
    at = data.draw(st.sampled_from(every))
    # Two letters change places.
    index = data.draw(st.integers(0, max(0, len(at[-1]) - 2)))
    wrong = at[-1][:index] + at[-1][index : index + 2][::-1] + at[-1][index + 2 :]
    owner = _at(values, at[:-1])
    section = next((s for a, s in places(schema, values, schema) if a == at[:-1]), schema)
    if wrong in owner or "additionalProperties" not in str(section) or "False" not in str(section):
        return
    found = lines(kind, changed(values, (*at[:-1], wrong), owner[at[-1]]))
    if found:  # names of devices, models and so on are free
        key = ".".join(map(str, (*at[:-1], wrong)))
        assert any(line.startswith(f"{key}: unknown key") and "valid: " in line for line in found) or any(
            line.startswith(f"{key}: expected") or line.startswith(f"{key}:") for line in found
        )


def _at(values, at):
    for key in at:
        values = values[key]
    return values


YAML_MISTAKES = {
    "a key twice": ("run: a\nmodels: [m]\nrun: b\n", ":3: the key 'run' stands there twice"),
    "an inner key twice": ("x:\n  a: 1\n  a: 1\n", ":3: the key 'a' stands there twice"),
    "a tag of Python": ("x: !!python/object/apply:os.system [touch /tmp/pwned]\n", ":1: could not determine"),
    "a tag of its own": ("x: !include other.yaml\n", ":1: could not determine a constructor"),
    "octal": ("x: 010\n", ":1: YAML does not read 010 as it is written"),
    "base 60": ("x: 1:30\n", ":1: YAML does not read 1:30 as it is written"),
    "a tab": ("x:\n\ta: 1\n", ":2: .*tabs"),
    "open": ("x: [1, 2\n", ":2: "),
    "two documents": ("a: 1\n---\nb: 2\n", ":2: "),
    "an anchor that contains itself": ("x: &x [*x]\n", ":1: too many values, or an anchor that contains itself"),
    "an unknown anchor": ("x: *y\n", ":1: .*undefined alias"),
    "no Unicode": (b"x: \xff\n", ": cannot be read: "),
    "a control character": ("x: \x07\n", ": cannot be read: "),
    "nothing but brackets": ("[" * 100_000, ""),
    "a bomb": ("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ), ":1: too many values"),
}  # fmt: skip


@pytest.mark.parametrize("name", YAML_MISTAKES)
def test_yaml_that_would_be_misunderstood_is_refused_by_file_and_line(name, tmp_path):
    content, message = YAML_MISTAKES[name]
    path = tmp_path / "odd.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (read_yaml, definitions, lambda path: settings(RunSettings, str(path))):
        with pytest.raises(DeltapError, match=re.escape(str(path)) + message) as error:
            read(path)
        assert "\n" not in str(error.value)
    assert not Path("/tmp/pwned").exists()


@pytest.mark.parametrize("content", ["", "# nothing\n", "- a\n- b\n", "text\n", "1: {label: x}\n", "null\n"])
def test_a_file_of_definitions_that_is_no_mapping_of_names_is_refused(content, tmp_path):
    (tmp_path / "odd.yaml").write_text(content)
    with pytest.raises(DeltapError, match=r"odd\.yaml: expected a mapping from names to definitions"):
        definitions(tmp_path / "odd.yaml")


def test_anchors_and_merged_keys_are_yaml_like_any_other(tmp_path):
    path = tmp_path / "fine.yaml"
    path.write_text("a: &a {label: A, x: 1}\nb:\n  <<: *a\n  label: B\nc: 0x10\nd: 10\ne: '010'\nf: 0\ng: 0.5\n")
    assert read_yaml(path) == {
        "a": {"label": "A", "x": 1},
        "b": {"label": "B", "x": 1},
        "c": 16,
        "d": 10,
        "e": "010",
        "f": 0,
        "g": 0.5,
    }


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda path: path.name)
def test_the_shipped_files_are_read_as_plain_yaml_reads_them(file):
    assert read_yaml(file) == yaml.safe_load(file.read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: no\nmodels: [m]\ndatasets: [d]", "run: expected a text .found: False.; yes, no, on and off are truth"),
        ("run: a\nmodels: [no]\ndatasets: [d]", "models.0: expected a text .found: False."),
        ("run: a\nmodels: [m]\ndatasets: [d]\nquestions: {number: on}", "questions.number: expected a number"),
        ("run: 2024-01-01\nmodels: [m]\ndatasets: [d]", "run: expected a text .found: datetime"),
        ("run: a\nmodels: [m]\ndatasets: [d]\nquestions: {bad_rows: .nan}", "questions.bad_rows: expected a finite"),
        ("run: a\nmodels: m\ndatasets: [d]", "models: expected a list .found: 'm'."),
        ("run: ../a\nmodels: [m]\ndatasets: [d]", "run: expected a text of the form"),
    ],
)
def test_values_that_yaml_reads_otherwise_than_they_look_are_refused(text, message):
    with pytest.raises(DeltapError, match=f"configuration: {message}"):
        Run(yaml.safe_load(text), CONFIG)


@given(
    value=st.recursive(
        st.sampled_from(VALUES),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["label", "source", "kind", "path", "tables", "hub", "prompt", "x"]), inner, max_size=4
            )
        ),
    )
)
def test_any_definition_is_right_or_refused_line_by_line(value):  # fmt: skip
    for kind in (ModelEntry, DatasetEntry, FigureEntry):
        try:
            definition("odd", Path("odd.yaml"), value, kind)
        except DeltapError as error:
            for line in str(error).split("\n"):
                assert line.startswith("odd.yaml: odd: ")
