"""The questions stage: the table of one data set's questions, and the counts of what was left out."""

import logging
from typing import Any

from deltap.errors import DeltapError
from deltap.questions.filters import filtered
from deltap.questions.reading import read_questions
from deltap.questions.selection import (
    distinct,
    in_several_splits,
    listed,
    sampled,
    split_sizes,
)
from deltap.settings import QuestionsStage
from deltap.text import normalise

logger = logging.getLogger(__name__)


def question_table(stage: QuestionsStage) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows of the questions table, in the order of their hash, and the counts.

    The counts: ``rows`` of the file; ``dropped`` by reason; ``questions`` of the table; ``splits``, questions in each;
    ``in_several_splits``, subjects and preferred answers that stand in more than one.
    Raises DeltapError where the data set cannot be read, where a filter leaves nothing, or where a split is left with
    too few questions.
    """
    reading = read_questions(stage.entry, stage.dataset, stage.questions.bad_rows)
    wanted, left_out = filtered(reading.questions, stage.entry, stage.dataset)
    shown = {normalise(example.question) for example in stage.examples}
    new = [question for question in wanted if question.words() not in shown]
    questions, repeated = distinct(new)
    sample = sampled(questions, stage.dataset, stage.questions)
    dropped = {
        "bad_row": reading.bad_rows,
        **left_out,
        "few_shot_example": len(wanted) - len(new),
        "duplicate": repeated["duplicate"],
        "same_question_other_answers": repeated["same_question_other_answers"],
        "not_sampled": len(questions) - len(sample),
    }
    logger.info("%s: %d rows; left out: %s", stage.dataset, reading.rows, listed(dropped))
    if not sample:
        raise DeltapError(f"data set {stage.dataset}: no question is left of {reading.rows} rows: {listed(dropped)}")
    splits, overlap = split_sizes(sample, stage.dataset), in_several_splits(sample)
    logger.info("%s: %d questions: %s", stage.dataset, len(sample), listed(splits))
    logger.info("%s: in more than one split: %s", stage.dataset, listed(overlap))
    counts = {
        "rows": reading.rows,
        "dropped": dropped,
        "questions": len(sample),
        "splits": splits,
        "in_several_splits": overlap,
    }
    return [asked.row(stage.dataset) for asked in sample], counts
