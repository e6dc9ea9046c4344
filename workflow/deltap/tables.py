"""The tables of a run: their columns, declared once, and how they are read and written.

Every table is a Parquet file whose schema is one of the constants below. A file carries the provenance of what
made it, and the labels that figures show, as JSON in its metadata (key ``deltap``).
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltap import checksum
from deltap.checksum import damaged
from deltap.errors import DeltapError
from deltap.files import whole

METADATA_KEY = b"deltap"
SERIES = ["model", "dataset", "extractor"]
"""The columns that tell one series, which has probes of its own, from the others."""

_string, _int, _float, _bool = pa.string(), pa.int32(), pa.float64(), pa.bool_()
_name = pa.dictionary(pa.int32(), pa.string())  # few distinct values over many rows


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


# A piece of text: characters start … end - 1.
SPAN = pa.struct({"start": _int, "end": _int, "text": _string})

# One row per question of a data set, in the order of ``hash``.
QUESTIONS = _schema(
    question_id=_string,
    dataset=_string,
    question=_string,
    gold_answers=pa.list_(_string),  # the first is the preferred one
    subject=_string,  # null where the data set does not name it
    property=_string,
    popularity=_float,
    question_type=_string,
    split=_string,  # train, validation or test
    hash=_string,  # 16 hexadecimal digits; decides sample and order
    extra=_string,  # the source row's other fields, as JSON
)

# What a model said to each question, before anybody looked for exact tokens in it.
GENERATED = _schema(
    model=_name,
    dataset=_name,
    question_id=_string,
    question=_string,
    answer=_string,  # stripped; with thinking on, without the thought
    generated_ids=pa.list_(_int),  # as the model generated them, thought included
    given=_bool,  # the answer comes from a file, not from the model
)

# The exact tokens that a language model names, word for word as they stand in question and answer.
SPANS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    question_id=_string,
    exact_question=pa.list_(_string),  # null where the model was not asked, or named nothing that stands there
    answer=_string,  # that ``exact_answer`` stands in
    exact_answer=_string,
)

# What a language model says of answers.
JUDGEMENTS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    question_id=_string,
    answer=_string,
    label=_string,  # truthful or hallucinated; null where its replies say neither
)

# One row per question that a model was asked, with what it said and what is read and cut.
ANSWERS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    question_id=_string,
    split=_string,
    question=_string,
    gold_answers=pa.list_(_string),
    answer=_string,  # stripped
    answer_given=_bool,  # it comes from a file, not from the model
    answer_ids=pa.list_(_int),  # the generated token ids, up to the last one that holds a character of the answer
    prompt_tokens=_int,
    exact_question=pa.list_(SPAN),  # E_Q, offsets in ``question``
    exact_question_source=_string,  # who found it
    exact_question_tokens=pa.list_(_int),  # positions in prompt + answer
    exact_question_token_text=pa.list_(_string),  # byte-level tokens may hold more than the span
    repeated_in_thought=_int,  # how often the thought says parts of E_Q again; those places are not cut
    exact_answer=SPAN,  # E_A, offsets in ``answer``
    exact_answer_source=_string,
    exact_answer_tokens=pa.list_(_int),
    exact_answer_token_text=pa.list_(_string),
    exclusion=_string,  # null, or why the sample has no activations
    clean_row=_int,  # row in the shard's clean tensors, null where excluded
    knockout_row=_int,  # row in the shard's knockout tensors, test samples only
)

# The answers of all shards, with their labels.
LABELS = pa.schema(
    [
        *ANSWERS,
        *_schema(
            shard=_int,  # whose tensors the rows count in
            label=_string,  # truthful, hallucinated or abstained
            label_source=_string,  # given, or the way of matching
            matched_alias=_string,  # the gold answer that was found
            echo=_bool,  # every gold answer that matched already stands in the question
            label_by_containment=_string,  # what "contained anywhere in the answer" says
            label_by_llm=_string,  # what the language model says; null where it was not asked
            label_by_given=_string,  # what a given file says
        ),
    ]
)

# One row per question that a model was asked: how it was answered, and whether probes see it.
SAMPLES = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    question_id=_string,
    split=_name,
    label=_name,  # truthful, hallucinated or abstained
    exclusion=_name,  # why probes do not see it (abstained included), null where they do
    used_for_probes=_bool,
    popularity=_float,  # null where the data set does not say
    question_type=_name,
    answer_characters=_int,
    answer_tokens=_int,  # up to the answer's last one; with thinking on, the thought's too
    exact_question_tokens=_int,  # how many; 0 where none was found
    exact_answer_tokens=_int,
    exact_question_source=_name,  # who found them
    exact_answer_source=_name,
    echo=_bool,
    label_by_exact_answer=_name,  # what each way of matching the text says
    label_by_containment=_name,
    label_by_exact=_name,
    label_by_llm=_name,  # null where no language model was asked
    label_by_given=_name,  # null where no label was given
)

# How many exact tokens each source found, and how long they are.
EXTRACTION = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    part=_name,  # question or answer
    source=_name,  # who found the spans; any: all of them together
    texts=_int,  # questions asked, or answers that are not empty
    found=_int,  # texts with spans by this source
    share=_float,  # found / texts; for the source any this is the coverage
    spans_per_text=_float,  # means over the texts with spans; null where there are none
    characters_per_span=_float,
    tokens_per_span=_float,
)

# One row per question whose subject the data set names: the rules against the data set's fields.
EXTRACTION_FIELDS = _schema(
    dataset=_name,
    question_id=_string,
    question=_string,
    by_fields=pa.list_(SPAN),  # offsets in ``question``
    by_rules=pa.list_(SPAN),
    shared_characters=_int,
    fields_characters=_int,
    rules_characters=_int,
    f1=_float,
)

# One row per probe and split.
PROBES = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    site=_name,
    position=_name,
    layer=_int,
    split=_name,
    auroc=_float,
    log_loss=_float,  # nats, both classes weighing the same
    accuracy=_float,
    n_truthful=_int,
    n_hallucinated=_int,
    regularisation=_float,  # the chosen C (logistic) or weight decay (mlp); null where no probe could be trained
    converged=_bool,
)

# One row per test sample and probe.
ANCHORS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    site=_name,
    position=_name,
    layer=_int,
    question_id=_string,
    label=_name,
    p_clean=pa.float32(),  # probability of truthful
    p_knockout=pa.float32(),
    predicted=_name,
    predicted_knockout=_name,
    flips=_bool,
    near_threshold=_bool,  # a probability so near 0.5 that rounding may decide: other batches, engines or GPUs
    k_star=_int,
    anchor_reference=_name,  # the anchor at layer k_star
)

# The tidy table: one row per grouping, test sample, layer, site and position; with controls, one for each of them too.
DELTA_P = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    intervention=_name,  # exact_question, or what a control cut instead
    estimate=_name,  # plain, or how a control made probes and groups
    draw=_int,  # of a control that is drawn several times; 0 elsewhere
    grouping=_name,  # per_layer or reference
    anchor=_name,  # q_anchored or a_anchored
    site=_name,
    position=_name,
    layer=_int,
    question_id=_string,
    label=_name,
    predicted=_name,
    p_clean=pa.float32(),
    p_knockout=pa.float32(),
    delta_p=pa.float32(),  # percentage points, for the configured reference class
)

# Mean ΔP and its interval. Of several draws all samples count, each as often as it is in the group.
SUMMARY = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    intervention=_name,
    estimate=_name,
    grouping=_name,
    anchor=_name,
    site=_name,
    position=_name,
    layer=_int,
    n=_int,  # of several draws the mean, rounded
    mean=_float,  # null where n = 0
    ci_low=_float,  # null where n < 2
    ci_high=_float,
)

# One row per test sample, intervention and draw: what was cut instead of the exact question.
INTERVENTIONS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    question_id=_string,
    shard=_int,
    intervention=_name,  # of the configuration: random_tokens, random_mass, answer_queries, dose_1, window_4, heads, …
    draw=_int,
    tokens=pa.list_(_int),  # positions in prompt + answer whose edges are cut
    from_question=_int,  # how many of them are of the question; the others fill up from template and examples
    exact_question_tokens=_int,  # how many E_Q has
    mass=_float,  # attention that the cut removes, 0 … 1, mean over the sample's own tokens, heads and layers
    exact_mass=_float,  # the same of the exact question's cut; both null for windows and heads
    row=_int,  # in the activation file of the intervention and draw
)

# Statistics of the controls, one row each.
CONTROLS = _schema(
    model=_name,
    dataset=_name,
    extractor=_name,
    site=_name,
    position=_name,
    control=_name,  # which control
    statistic=_name,  # what was computed; percentage points and percent where it is ΔP or a share
    grouping=_name,  # null where it has none
    group=_name,  # an anchor, a class, both; null where it is of all samples
    layer=_int,  # null where it is of several
    at=_float,  # what the control varies: C, tokens, a window's first layer; null where nothing
    n=_int,  # samples behind it
    value=_float,
    ci_low=_float,
    ci_high=_float,
    p=_float,  # of no difference, corrected for the number of layers; null where it is not tested
)

# Differences between two models on one data set, or two data sets of one model: of their means over the deeper half.
DIFFERENCES = _schema(
    model=_name,
    dataset=_name,
    other_model=_name,
    other_dataset=_name,
    extractor=_name,
    site=_name,
    position=_name,
    statistic=_name,  # gap, delta_p (of Q-Anchored) or flip_rate
    grouping=_name,
    value=_float,  # of the first less that of the other, percentage points
    ci_low=_float,
    ci_high=_float,
    p=_float,  # of no difference, corrected for all pairs (Holm)
)


def write_table(path: str | Path, rows: pa.Table | Iterable[dict[str, Any]], schema: pa.Schema, metadata: dict) -> None:
    """Write ``rows`` (a table, or one mapping per row) as a whole Parquet file with the given schema.

    ``metadata`` is any JSON mapping (``provenance``, ``labels``). The same rows and metadata give the same bytes.
    """
    write_batches(path, [rows if isinstance(rows, pa.Table) else _table(rows, schema)], schema, metadata)


def write_batches(path: str | Path, tables: Iterable[pa.Table], schema: pa.Schema, metadata: dict) -> None:
    """Write tables one after another into one whole Parquet file, without holding them together in memory."""
    schema = schema.with_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
    with whole(path) as temporary:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table.select(schema.names).cast(schema))
        checksum.seal(temporary)


def _table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def read_table(path: str | Path, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """Read a table and check its columns against ``schema``.

    Raises DeltapError that names the file when it cannot be read, or lacks a column, or has one of another type.
    """
    check_schema(path, schema)
    with _refusing(path):
        return pq.read_table(path, columns=columns)


def iterate_table(path: str | Path, schema: pa.Schema, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a table one by one, after the check of `read_table`."""
    check_schema(path, schema)
    with _refusing(path), pq.ParquetFile(path) as file:
        number = file.num_row_groups
    for index in range(number):
        # Whatever goes wrong outside, while a group is in use, is not the file's fault.
        with _refusing(path), pq.ParquetFile(path) as file:
            group = file.read_row_group(index, columns=columns)
        yield group


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return the ``deltap`` metadata of a Parquet file, or an empty mapping where there is none."""
    text = (_read_schema(path).metadata or {}).get(METADATA_KEY, b"{}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its metadata are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise damaged(path, "its metadata are no mapping")
    return value


def read_columns(path: str | Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    return _read_schema(path).names


def _read_schema(path: str | Path) -> pa.Schema:
    with _refusing(path):
        checksum.check(path)
        return pq.read_schema(path)


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """Say by the file's name that it cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise DeltapError(f"{path}: no such table") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged(path, f"not a readable Parquet file: {error}") from None


def check_schema(path: str | Path, schema: pa.Schema) -> None:
    """Raise DeltapError unless the Parquet file ``path`` has every column of ``schema`` with a compatible type."""
    found = _read_schema(path)
    missing = [name for name in schema.names if name not in found.names]
    if missing:
        raise DeltapError(f"{path}: missing columns {', '.join(missing)} (found: {', '.join(found.names)})")
    wrong = [
        f"{field.name} is {found.field(field.name).type}, expected {field.type}"
        for field in schema
        if not _compatible(found.field(field.name).type, field.type)
    ]
    if wrong:
        raise DeltapError(f"{path}: {'; '.join(wrong)}")


def _compatible(found: pa.DataType, expected: pa.DataType) -> bool:
    plain_found = found.value_type if pa.types.is_dictionary(found) else found
    plain_expected = expected.value_type if pa.types.is_dictionary(expected) else expected
    return any(
        test(plain_found) and test(plain_expected) for test in (pa.types.is_integer, pa.types.is_floating, _is_text)
    ) or plain_found.equals(plain_expected)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
