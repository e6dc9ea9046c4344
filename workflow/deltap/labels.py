"""Labels: whether an answer is truthful, hallucinated, or none at all.

An answer is truthful if the text of its exact answer equals a gold answer or contains one on word boundaries, after
Unicode normalisation and case folding. The other direction does not count: "Obama" is truthful for the gold answer
"Barack Obama" only where the data set lists it as an alias, because a part of a name may belong to someone else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa

from deltap.given import Given
from deltap.refusals import refuses
from deltap.settings import ABSTAINED, HALLUCINATED, LABEL_NAMES, TRUTHFUL, LabelSettings, Match
from deltap.text import contains, normalise

TEXT_MATCHES: tuple[Match, ...] = ("exact_answer", "containment", "exact")
"""The ways of matching that need the text alone."""
NO_GIVEN_LABEL = "no_given_label"


@dataclass(frozen=True, slots=True)
class Label:
    """What an answer is, and why."""

    label: str
    """``truthful``, ``hallucinated`` or ``abstained``."""
    source: str
    """The way of matching; for an answer that the language model did not judge the default one."""
    matched_alias: str | None
    """The first gold answer that was found, in their order."""
    echo: bool
    """Every gold answer that was found already stands in the question, so that finding it proves nothing."""


def abstains(answer: str) -> bool:
    """Tell whether an answer has no word, or refuses."""
    return not normalise(answer) or refuses(answer)


def label(
    answer: str,
    exact_answer: str | None,
    question: str,
    gold_answers: Sequence[str],
    match: Match,
    judged: str | None = None,
) -> Label:
    """Return the label of an answer; ``exact_answer`` is the text of its core, None where it has none.

    A gold answer that normalises to nothing is never found. An answer without any word, or one that refuses, is
    ``abstained``; but an answer that equals a gold answer as a whole is truthful, whatever it says. ``judged`` is what
    a language model says, which counts for the match ``llm`` only.
    """
    by_text: Match = "exact_answer" if match == "llm" else match
    if abstains(answer) and not _found(answer, exact_answer, gold_answers, "exact"):
        return Label(ABSTAINED, by_text, None, False)
    found = _found(answer, exact_answer, gold_answers, by_text)
    by_llm = match == "llm" and judged is not None
    return Label(
        label=judged if by_llm and judged else TRUTHFUL if found else HALLUCINATED,
        source=match if by_llm else by_text,
        matched_alias=found[0] if found else None,
        echo=bool(found) and all(contains(question, alias) for alias in found),
    )


def _found(answer: str, exact_answer: str | None, gold_answers: Sequence[str], match: Match) -> list[str]:
    """Return the gold answers that are found, in their order; one that equals the whole answer always is."""
    whole = normalise(answer)
    text = exact_answer or "" if match == "exact_answer" else answer if match == "containment" else ""
    return [alias for alias in gold_answers if contains(text, alias) or normalise(alias) == whole != ""]


def labels_by_text(row: Mapping[str, Any]) -> dict[Match, str]:
    """Return what each way of matching the text says of an ANSWERS row."""
    return {match: label(**_arguments(row), match=match).label for match in TEXT_MATCHES}


def labelled(
    answers: pa.Table,
    shard: int,
    settings: LabelSettings,
    judged: Mapping[str, str | None] | None = None,
    given: Given[str] | None = None,
) -> pa.Table:
    """Return the ANSWERS of a shard with the further columns of LABELS.

    ``judged`` are a language model's labels by question id. ``given`` are labels from a file; where they say anything
    about the data set they alone count, and an answer without one is excluded.
    """
    columns: dict[str, list[Any]] = {name: [] for name in (*_FURTHER, "exclusion")}
    for row in answers.to_pylist():
        by_llm = (judged or {}).get(row["question_id"])
        by_given = given.find(row, row["answer"]) if given else None
        found = label(**_arguments(row), match=settings.match, judged=by_llm)
        columns["exclusion"].append(row["exclusion"] or (NO_GIVEN_LABEL if given and by_given is None else None))
        columns["label"].append(found.label if not given else by_given or ABSTAINED)
        columns["label_source"].append("given" if given else found.source)
        columns["matched_alias"].append(found.matched_alias)
        columns["echo"].append(found.echo)
        columns["label_by_containment"].append(label(**_arguments(row), match="containment").label)
        columns["label_by_llm"].append(by_llm)
        columns["label_by_given"].append(by_given)
    index = answers.schema.get_field_index("exclusion")
    answers = answers.set_column(index, "exclusion", pa.array(columns["exclusion"], pa.string()))
    answers = answers.append_column("shard", pa.array([shard] * len(answers), pa.int32()))
    for name, kind in _FURTHER.items():
        answers = answers.append_column(name, pa.array(columns[name], kind))
    return answers


_FURTHER = {
    "label": pa.string(),
    "label_source": pa.string(),
    "matched_alias": pa.string(),
    "echo": pa.bool_(),
    "label_by_containment": pa.string(),
    "label_by_llm": pa.string(),
    "label_by_given": pa.string(),
}


def counts(tables: Sequence[pa.Table]) -> dict[str, Any]:
    """Return what a user has to know about the answers of some LABELS tables.

    ``labels`` counts all answers; ``samples`` those that probes see, neither excluded nor abstained; ``exclusions`` the
    others by reason. ``agreement`` is the share of answers, without the abstained, to which two ways of labelling give
    the same label, among those to which both give one.
    """
    rows = [row for table in tables for row in table.to_pylist()]
    kept = [row for row in rows if row["exclusion"] is None and row["label"] != ABSTAINED]
    answered = [row for row in rows if row["label"] != ABSTAINED]
    ways = [{**labels_by_text(row), "llm": row["label_by_llm"], "given": row["label_by_given"]} for row in answered]
    used = [*TEXT_MATCHES, *(way for way in ("llm", "given") if any(labels[way] for labels in ways))]
    return {
        "answers": len(rows),
        "labels": {name: sum(row["label"] == name for row in rows) for name in LABEL_NAMES},
        "samples": {name: sum(row["label"] == name for row in kept) for name in (TRUTHFUL, HALLUCINATED)},
        "exclusions": dict(sorted(Counter(row["exclusion"] for row in rows if row["exclusion"] is not None).items())),
        "echoes": sum(row["echo"] for row in rows),
        "truthful_by_match": {way: sum(labels[way] == TRUTHFUL for labels in ways) for way in used},
        "agreement": {
            f"{one}/{other}": _share([way[one] == way[other] for way in ways if way[one] and way[other]])
            for one, other in combinations(used, 2)
        },
    }


def _arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    exact = row["exact_answer"]
    arguments = {name: row[name] for name in ("answer", "question", "gold_answers")}
    return {**arguments, "exact_answer": exact["text"] if exact else None}


def _share(agree: Sequence[bool]) -> float | None:
    return sum(agree) / len(agree) if agree else None
