"""How good the exact tokens are: who found how many, how long they are, and the rules against a data set's fields.

Where a data set names subject and property, they are the truth that the rules, which see the question alone, are
compared with, character by character.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from deltap import markdown
from deltap.exact.found import Found
from deltap.exact.question import exact_question
from deltap.exact.spans import Span

PARTS = ("question", "answer")
ANY = "any"
"""The source that stands for all of them."""
WORST = 20
"""Questions of each data set that the report shows."""
_READ = ["model", "dataset", "extractor", "answer", "exact_question", "exact_question_source", "exact_question_tokens",
         "exact_answer", "exact_answer_source", "exact_answer_tokens"]  # fmt: skip

Row = dict[str, Any]


@dataclass
class _Sums:
    texts: int = 0
    spans: int = 0
    characters: int = 0
    tokens: int = 0

    def add(self, lengths: Sequence[int], tokens: int) -> None:
        self.texts += 1
        self.spans += len(lengths)
        self.characters += sum(lengths)
        self.tokens += tokens


@dataclass
class _Part:
    """The questions, or the answers, of one model, data set and extractor."""

    texts: int = 0
    sources: dict[str, _Sums] = field(default_factory=dict)


def by_source(answers: Iterable[pa.Table]) -> list[Row]:
    """Return the EXTRACTION rows of LABELS tables: of each series the questions, then the answers.

    The source ``any`` comes first, then those that found something, by name.
    """
    parts: dict[tuple[str, ...], _Part] = {}
    for table in answers:
        for row in table.select(_READ).to_pylist():
            for name in PARTS:
                part = parts.setdefault((row["model"], row["dataset"], row["extractor"], name), _Part())
                if name == "answer" and not row["answer"]:
                    continue
                part.texts += 1
                spans = row[f"exact_{name}"] or []
                lengths = [span["end"] - span["start"] for span in ([spans] if isinstance(spans, dict) else spans)]
                if lengths:
                    for source in (ANY, row[f"exact_{name}_source"]):
                        part.sources.setdefault(source, _Sums()).add(lengths, len(row[f"exact_{name}_tokens"]))
    return [
        _row(key, source, part.texts, part.sources.get(source, _Sums()))
        for key, part in parts.items()
        for source in (ANY, *sorted(part.sources.keys() - {ANY}))
    ]


def _row(key: tuple[str, ...], source: str, texts: int, sums: _Sums) -> Row:
    return {
        **dict(zip(("model", "dataset", "extractor", "part"), key, strict=True)),
        "source": source,
        "texts": texts,
        "found": sums.texts,
        "share": _ratio(sums.texts, texts),
        "spans_per_text": _ratio(sums.spans, sums.texts),
        "characters_per_span": _ratio(sums.characters, sums.spans),
        "tokens_per_span": _ratio(sums.tokens, sums.spans),
    }


def _ratio(one: int, other: int) -> float | None:
    return one / other if other else None


def against_fields(questions: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the EXTRACTION_FIELDS rows of questions: of those in which the data set's fields are found."""
    rows = []
    for row in questions:
        fields = exact_question(row["question"], row["subject"], row["property"], "fields")
        if fields is None:
            continue
        rules = exact_question(row["question"], None, None, "rules")
        one, other = _characters(fields), _characters(rules)
        rows.append(
            {
                "dataset": row["dataset"],
                "question_id": row["question_id"],
                "question": row["question"],
                "by_fields": _spans(fields, row["question"]),
                "by_rules": _spans(rules, row["question"]),
                "shared_characters": len(one & other),
                "fields_characters": len(one),
                "rules_characters": len(other),
                "f1": 2 * len(one & other) / (len(one) + len(other)),
            }
        )
    return rows


def _characters(found: Found | None) -> set[int]:
    return {index for span in (found.spans if found else ()) for index in range(span.start, span.end)}


def _spans(found: Found | None, text: str) -> list[Row]:
    return [_span(span, text) for span in (found.spans if found else ())]


def _span(span: Span, text: str) -> Row:
    return {"start": span.start, "end": span.end, "text": span.text_in(text)}


class Agreement(NamedTuple):
    """What rules find of what fields say, over the characters of all questions together."""

    questions: int
    precision: float | None
    """Of the characters that rules find, the share that fields have."""
    recall: float | None
    """Of the characters that fields have, the share that rules find."""
    f1: float | None


def agreements(rows: Iterable[Row]) -> dict[str, Agreement]:
    """Return the agreement of each data set, from EXTRACTION_FIELDS rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["dataset"], []).append(row)
    return {dataset: _agreement(group) for dataset, group in groups.items()}


def _agreement(rows: Sequence[Row]) -> Agreement:
    shared, fields, rules = (sum(row[f"{name}_characters"] for row in rows) for name in ("shared", "fields", "rules"))
    return Agreement(len(rows), _ratio(shared, rules), _ratio(shared, fields), _ratio(2 * shared, fields + rules))


def worst(rows: Iterable[Row], dataset: str) -> list[Row]:
    """Return the questions of a data set on which rules and fields differ most, `WORST` of them at most."""
    different = [row for row in rows if row["dataset"] == dataset and row["f1"] < 1]
    return sorted(different, key=lambda row: (row["f1"], row["question"]))[:WORST]


def report(found: Sequence[Row], compared: Sequence[Row], names: Mapping[str, Mapping[str, str]]) -> str:
    """Return EXTRACTION and EXTRACTION_FIELDS rows as Markdown; ``names``: what slugs are called."""

    def called(kind: str, slug: str) -> str:
        return names.get(kind, {}).get(slug, slug)

    parts = [
        "# Exact tokens\n",
        "Who found the exact tokens of how many questions, and of how many answers that are not empty. The share of "
        f"the source '{ANY}' is the coverage; lengths are means.\n",
        markdown.table(
            ["model", "data set", "extractor", "part", "source", "texts", "found", "share", "spans per text",
             "characters per span", "tokens per span"],
            [
                [called("model", row["model"]), called("dataset", row["dataset"]), row["extractor"], row["part"],
                 row["source"], row["texts"], row["found"], markdown.share(row["share"]),
                 *(markdown.mean(row[name]) for name in ("spans_per_text", "characters_per_span", "tokens_per_span"))]
                for row in found
            ],
        ),
        "## Rules against fields\n",
    ]  # fmt: skip
    agreed = agreements(compared)
    if not agreed:
        return "\n".join([*parts, "No data set of this run names the subjects of its questions.\n"])
    parts += [
        "What the rules find of the subject and property that the data set names, in characters of all questions "
        "together, without seeing them.\n",
        markdown.table(
            ["data set", "questions", "precision", "recall", "F1"],
            [
                [called("dataset", dataset), item.questions, *map(_three, (item.precision, item.recall, item.f1))]
                for dataset, item in agreed.items()
            ],
        ),
    ]
    for dataset in agreed:
        if shown := worst(compared, dataset):
            parts += [
                f"### {markdown.escaped(called('dataset', dataset))}: the questions that differ most\n",
                markdown.table(
                    ["F1", "question", "fields", "rules"],
                    [[_three(row["f1"]), row["question"], *(_texts(row[name]) for name in ("by_fields", "by_rules"))]
                     for row in shown],
                ),
            ]  # fmt: skip
    return "\n".join(parts)


def _three(value: float | None) -> str:
    return markdown.NOTHING if value is None else f"{value:.3f}"


def _texts(spans: Iterable[Row]) -> str:
    return " … ".join(span["text"] for span in spans) or markdown.NOTHING
