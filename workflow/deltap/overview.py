"""The samples of a run: a row for each question that a model was asked, and an overview of them for people.

Accuracy is truthful / (truthful + hallucinated): abstained answers count in neither.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from deltap import markdown
from deltap.errors import DeltapError
from deltap.labels import TEXT_MATCHES, labels_by_text
from deltap.settings import ABSTAINED, HALLUCINATED, LABEL_NAMES, SPLITS, TRUTHFUL
from deltap.tables import SAMPLES, SERIES

WAYS = (*TEXT_MATCHES, "llm", "given")
"""The ways of labelling; the last two where a language model or a file was asked."""
_SAME = (*SERIES, "question_id", "split", "label", "exact_question_source", "exact_answer_source", "echo",
         "label_by_llm", "label_by_given")  # fmt: skip
_READ = (*_SAME, "exclusion", "question", "gold_answers", "answer", "answer_ids", "exact_answer",
         "exact_question_tokens", "exact_answer_tokens")  # fmt: skip


class Facts(NamedTuple):
    """What the table of questions knows about a question and the answers do not."""

    popularity: float | None
    question_type: str | None


def question_facts(questions: Iterable[pa.Table]) -> dict[tuple[str, str], Facts]:
    """Return the facts by data set and question id, from QUESTIONS tables."""
    columns = ["dataset", "question_id", "popularity", "question_type"]
    return {
        (row["dataset"], row["question_id"]): Facts(row["popularity"], row["question_type"])
        for table in questions
        for row in table.select(columns).to_pylist()
    }


def sample_table(answers: pa.Table, facts: Mapping[tuple[str, str], Facts]) -> pa.Table:
    """Return the SAMPLES of some LABELS rows, in their order.

    Raises DeltapError where a question is not in the data set's table of questions.
    """
    rows = answers.select(list(_READ)).to_pylist()
    return pa.Table.from_pylist([_sample(row, facts) for row in rows], schema=SAMPLES)


def _sample(row: Mapping[str, Any], facts: Mapping[tuple[str, str], Facts]) -> dict[str, Any]:
    fact = facts.get((row["dataset"], row["question_id"]))
    if fact is None:
        raise DeltapError(
            f"data set {row['dataset']}: question {row['question_id']!r} was answered but is not in the table of "
            "questions; the answers are older than it: run snakemake again"
        )
    by_way = {f"label_by_{way}": found for way, found in labels_by_text(row).items()}
    exclusion = row["exclusion"] or (ABSTAINED if row["label"] == ABSTAINED else None)
    return {
        **{name: row[name] for name in _SAME},
        **fact._asdict(),
        **by_way,
        "exclusion": exclusion,
        "used_for_probes": exclusion is None,
        "answer_characters": len(row["answer"]),
        "answer_tokens": len(row["answer_ids"]),
        "exact_question_tokens": len(row["exact_question_tokens"]),
        "exact_answer_tokens": len(row["exact_answer_tokens"]),
    }


class Tercile(NamedTuple):
    """A third of the questions by popularity; questions of the same popularity are never parted."""

    name: str
    lowest: float
    highest: float
    questions: int
    accuracy: float | None


@dataclass(frozen=True)
class Overview:
    """How one model does on one data set, with the exact tokens of one extractor."""

    model: str
    dataset: str
    extractor: str
    questions: int
    labels: Mapping[str, int]
    accuracy: float | None
    """None where every answer is abstained."""
    used_for_probes: int
    classes: Mapping[str, tuple[int, int]]
    """For each split the truthful and the hallucinated answers that probes see."""
    exclusions: Mapping[str, int]
    """The questions that probes do not see, by reason."""
    echoes: int
    answer_characters: float | None
    """Mean over the answers that are not empty, as the next one."""
    answer_tokens: float | None
    terciles: Sequence[Tercile]
    """Empty where the data set has no popularity; fewer than three where many questions have the same one."""
    agreement: Mapping[tuple[str, str], float | None]
    """Share of the answers, without the abstained, to which two ways of labelling give the same label; of those to
    which both give one. Only ways that were asked."""


def overviews(samples: pa.Table) -> list[Overview]:
    """Return one overview per model, data set and extractor of a SAMPLES table, in the order of its rows."""
    groups = samples.unify_dictionaries().to_pandas().groupby(SERIES, sort=False, observed=True)
    return [_overview(rows) for _, rows in groups]


def _overview(rows: pd.DataFrame) -> Overview:
    model, dataset, extractor = (str(rows[name].iloc[0]) for name in SERIES)
    answered = rows[rows["label"] != ABSTAINED]
    said = rows[rows["answer_characters"] > 0]
    return Overview(
        model=model,
        dataset=dataset,
        extractor=extractor,
        questions=len(rows),
        labels={name: int((rows["label"] == name).sum()) for name in LABEL_NAMES},
        accuracy=_accuracy(rows),
        used_for_probes=int(rows["used_for_probes"].sum()),
        classes=_classes(rows[rows["used_for_probes"]]),
        exclusions=dict(sorted(Counter(map(str, rows["exclusion"].dropna())).items())),
        echoes=int(rows["echo"].eq(True).sum()),
        answer_characters=_mean(said["answer_characters"]),
        answer_tokens=_mean(said["answer_tokens"]),
        terciles=_terciles(rows),
        agreement=_agreement(answered),
    )


def _agreement(answered: pd.DataFrame) -> dict[tuple[str, str], float | None]:
    labels = {way: answered[f"label_by_{way}"].astype(object) for way in WAYS}
    asked = [way for way in WAYS if way in TEXT_MATCHES or labels[way].notna().any()]
    both = {(one, other): labels[one].notna() & labels[other].notna() for one, other in combinations(asked, 2)}
    return {(one, other): _mean(labels[one][known] == labels[other][known]) for (one, other), known in both.items()}


def _classes(used: pd.DataFrame) -> dict[str, tuple[int, int]]:
    of_split = {split: used.loc[used["split"] == split, "label"] for split in SPLITS}
    return {
        split: (int((labels == TRUTHFUL).sum()), int((labels == HALLUCINATED).sum()))
        for split, labels in of_split.items()
    }


def _probes(item: Overview) -> str:
    """Say whether there are probes, or else which split has no answer of which class."""
    lacking = [
        f"{split} has no {label} answer"
        for split in ("train", "validation")
        for label, number in zip((TRUTHFUL, HALLUCINATED), item.classes[split], strict=True)
        if not number
    ]
    return f"none: {', '.join(lacking)}" if lacking else "yes"


def _accuracy(rows: pd.DataFrame) -> float | None:
    return _mean(rows.loc[rows["label"].isin([TRUTHFUL, HALLUCINATED]), "label"] == TRUTHFUL)


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None


def _terciles(rows: pd.DataFrame) -> list[Tercile]:
    known = rows[rows["popularity"].notna()]
    if known.empty:
        return []
    edges = np.quantile(known["popularity"], [1 / 3, 2 / 3])
    place = np.searchsorted(edges, known["popularity"])  # of equal values the edge goes to the lower third
    return [
        Tercile(name, float(part["popularity"].min()), float(part["popularity"].max()), len(part), _accuracy(part))
        for index, name in enumerate(("low", "middle", "high"))
        if len(part := known[place == index])
    ]


def report(found: Sequence[Overview], names: Mapping[str, Mapping[str, str]]) -> str:
    """Return the overviews as Markdown; ``names``: what ``model`` and ``dataset`` slugs are called."""
    several = len({item.extractor for item in found}) > 1

    def series(item: Overview) -> list[str]:
        called = [names.get("model", {}).get(item.model, item.model)]
        called.append(names.get("dataset", {}).get(item.dataset, item.dataset))
        return [*called, item.extractor] if several else called

    head = ["model", "data set", *(["extractor"] if several else [])]
    pairs = list(dict.fromkeys(pair for item in found for pair in item.agreement))
    reasons = sorted({reason for item in found for reason in item.exclusions})
    parts = [
        "# Questions and answers\n",
        "Accuracy is truthful / (truthful + hallucinated). Lengths are means over the answers that are not empty.\n",
        markdown.table(
            [*head, "questions", *LABEL_NAMES, "accuracy", "echoes", "characters", "tokens"],
            [
                [*series(item), item.questions, *item.labels.values(), markdown.share(item.accuracy), item.echoes,
                 markdown.mean(item.answer_characters), markdown.mean(item.answer_tokens)]
                for item in found
            ],
        ),
        "## Exclusions\n",
        "Questions that probes see, and the others by reason.\n",
        markdown.table(
            [*head, "used for probes", *reasons],
            [[*series(item), item.used_for_probes, *(item.exclusions.get(reason, 0) for reason in reasons)]
             for item in found],
        ),
        "## Samples of the probes\n",
        "Truthful and hallucinated answers in each split. Without both in train and validation there are no probes, "
        "and so no curve.\n",
        markdown.table(
            [*head, *(f"{split} {label}" for split in SPLITS for label in (TRUTHFUL, HALLUCINATED)), "probes"],
            [[*series(item), *(number for split in SPLITS for number in item.classes[split]), _probes(item)]
             for item in found],
        ),
        "## Ways of labelling\n",
        "The share of answers, without the abstained, to which two ways give the same label.\n",
        markdown.table(
            [*head, *(f"{one} = {other}" for one, other in pairs)],
            [[*series(item), *(markdown.share(item.agreement.get(pair)) for pair in pairs)] for item in found],
        ),
    ]  # fmt: skip
    popular = [(item, tercile) for item in found for tercile in item.terciles]
    if popular:
        parts += [
            "## Accuracy by popularity\n",
            "Thirds of each data set's questions.\n",
            markdown.table(
                [*head, "third", "popularity from", "to", "questions", "accuracy"],
                [
                    [*series(item), third.name, f"{third.lowest:,.10g}", f"{third.highest:,.10g}", third.questions,
                     markdown.share(third.accuracy)]
                    for item, third in popular
                ],
            ),
        ]  # fmt: skip
    return "\n".join(parts)
