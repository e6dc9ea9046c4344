"""Labels: whether an answer is truthful, hallucinated, or none at all.

An answer is truthful if the text of its exact answer equals a gold answer or contains one on word boundaries, after
Unicode normalisation and case folding. The other direction does not count: "Obama" is truthful for the gold answer
"Barack Obama" only where the data set lists it as an alias, because a part of a name may belong to someone else.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

import pyarrow as pa

from deltap.refusals import refuses
from deltap.settings import LabelSettings, Match
from deltap.text import contains, normalise

MATCHES: tuple[Match, ...] = get_args(Match)
TRUTHFUL, HALLUCINATED, ABSTAINED = LABEL_NAMES = ("truthful", "hallucinated", "abstained")


@dataclass(frozen=True, slots=True)
class Label:
    """What an answer is, and why."""

    label: str
    """``truthful``, ``hallucinated`` or ``abstained``."""
    matched_alias: str | None
    """The first gold answer that was found, in their order."""
    echo: bool
    """Every gold answer that was found already stands in the question, so that finding it proves nothing."""
    by_containment: str
    """The label if gold answers were looked for anywhere in the answer."""


def label(
    answer: str, exact_answer: str | None, question: str, gold_answers: Sequence[str], settings: LabelSettings
) -> Label:
    """Return the label of an answer; ``exact_answer`` is the text of its core, None where it has none.

    A gold answer that normalises to nothing is never found. An answer without any word, or one that refuses, is
    ``abstained``; but an answer that equals a gold answer as a whole is truthful, whatever it says.
    """
    abstains = exact_answer is None or refuses(answer)
    if abstains and not _found(answer, exact_answer, gold_answers, "exact"):
        return Label(ABSTAINED, None, False, ABSTAINED)
    found = _found(answer, exact_answer, gold_answers, settings.match)
    return Label(
        label=TRUTHFUL if found else HALLUCINATED,
        matched_alias=found[0] if found else None,
        echo=bool(found) and all(contains(question, alias) for alias in found),
        by_containment=TRUTHFUL if _found(answer, exact_answer, gold_answers, "containment") else HALLUCINATED,
    )


def _found(answer: str, exact_answer: str | None, gold_answers: Sequence[str], match: Match) -> list[str]:
    """Return the gold answers that are found, in their order; one that equals the whole answer always is."""
    whole = normalise(answer)
    text = {"exact_answer": exact_answer or "", "containment": answer, "exact": ""}[match]
    return [alias for alias in gold_answers if contains(text, alias) or normalise(alias) == whole != ""]


def labelled(answers: pa.Table, shard: int, settings: LabelSettings) -> pa.Table:
    """Return the ANSWERS of a shard with the further columns of LABELS."""
    labels = [label(**arguments, settings=settings) for arguments in _arguments(answers)]
    columns = {
        "shard": pa.array([shard] * len(labels), pa.int32()),
        "label": pa.array([item.label for item in labels], pa.string()),
        "matched_alias": pa.array([item.matched_alias for item in labels], pa.string()),
        "echo": pa.array([item.echo for item in labels], pa.bool_()),
        "label_by_containment": pa.array([item.by_containment for item in labels], pa.string()),
    }
    for name, column in columns.items():
        answers = answers.append_column(name, column)
    return answers


def counts(tables: Sequence[pa.Table]) -> dict[str, Any]:
    """Return what a user has to know about the answers of some LABELS tables.

    ``labels`` counts all answers; ``samples`` those that probes see, neither excluded nor abstained; ``exclusions`` the
    others by reason. ``agreement`` is the share of answers, without the abstained, to which two ways of matching give
    the same label.
    """
    rows = [row for table in tables for row in table.select(["label", "exclusion", "echo"]).to_pylist()]
    kept = [row for row in rows if row["exclusion"] is None and row["label"] != ABSTAINED]
    by_match = {
        match: [label(**a, settings=LabelSettings(match=match)).label for table in tables for a in _arguments(table)]
        for match in MATCHES
    }
    answered = [index for index, row in enumerate(rows) if row["label"] != ABSTAINED]
    return {
        "answers": len(rows),
        "labels": {name: sum(row["label"] == name for row in rows) for name in LABEL_NAMES},
        "samples": {name: sum(row["label"] == name for row in kept) for name in (TRUTHFUL, HALLUCINATED)},
        "exclusions": dict(sorted(Counter(row["exclusion"] for row in rows if row["exclusion"] is not None).items())),
        "echoes": sum(row["echo"] for row in rows),
        "truthful_by_match": {match: labels.count(TRUTHFUL) for match, labels in by_match.items()},
        "agreement": {
            f"{one}/{other}": _share([by_match[one][index] == by_match[other][index] for index in answered])
            for one, other in combinations(MATCHES, 2)
        },
    }


def _arguments(answers: pa.Table) -> list[dict[str, Any]]:
    rows = answers.select(["answer", "exact_answer", "question", "gold_answers"]).to_pylist()
    return [{**row, "exact_answer": row["exact_answer"] and row["exact_answer"]["text"]} for row in rows]


def _share(agree: Sequence[bool]) -> float | None:
    return sum(agree) / len(agree) if agree else None
