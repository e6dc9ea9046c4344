"""Which questions of a data set may be asked: the filters of its entry in the configuration."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from deltap.errors import DeltapError, nearest
from deltap.questions.question import Question
from deltap.questions.selection import only_yes_or_no
from deltap.settings import DatasetSource, PopularityRange

FILTERS = ("ids", "types", "popularity", "yes_no")
"""The filters by their keys in the configuration, in the order in which they are applied."""
_NAMED = 5  # ids that an error names


def filtered(
    questions: Sequence[Question], entry: DatasetSource, dataset: str
) -> tuple[list[Question], dict[str, int]]:
    """Return the questions that pass every filter of ``entry``, and how many each filter left out.

    Raises DeltapError where a listed id or type is not in the data set, or where a filter leaves nothing.
    """
    kept = list(questions)
    left_out = dict.fromkeys(FILTERS, 0)
    for name, keeps in _filters(questions, entry, dataset).items():
        passed = [question for question in kept if keeps(question)]
        if kept and not passed:
            raise DeltapError(
                f"data set {dataset}: no question is left by the filter '{name}'; it leaves out all of the {len(kept)} "
                f"that came to it{_why(name, kept)}"
            )
        left_out[name] = len(kept) - len(passed)
        kept = passed
    return kept, left_out


def _filters(
    questions: Sequence[Question], entry: DatasetSource, dataset: str
) -> dict[str, Callable[[Question], bool]]:
    """Return what each configured filter keeps, in the order of `FILTERS`."""
    chosen: dict[str, Callable[[Question], bool]] = {}
    if (ids := listed_ids(entry, dataset)) is not None:
        _check_ids(ids, {question.question_id for question in questions}, dataset)
        chosen["ids"] = lambda question: question.question_id in ids
    if (types := entry.types) is not None:
        _check_types(types, questions, dataset)
        chosen["types"] = lambda question: question.question_type in types
    if (limits := entry.popularity) is not None:
        chosen["popularity"] = lambda question: _within(question.popularity, limits)
    if not entry.yes_no:
        chosen["yes_no"] = lambda question: not only_yes_or_no(question)
    return chosen


def listed_ids(entry: DatasetSource, dataset: str) -> frozenset[str] | None:
    """Return the ids that the entry lists, itself or in its file; None where it lists none.

    Raises DeltapError where the file cannot be read as UTF-8 or has no id.
    """
    if entry.ids_file is None:
        return None if entry.ids is None else frozenset(map(str, entry.ids))
    try:
        lines = Path(entry.ids_file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DeltapError(f"data set {dataset}: ids_file {entry.ids_file} cannot be read: {error}") from None
    ids = frozenset(line.strip() for line in lines if line.strip())
    if not ids:
        raise DeltapError(f"data set {dataset}: ids_file {entry.ids_file} has no id; write one per line")
    return ids


def _check_ids(ids: Iterable[str], found: set[str], dataset: str) -> None:
    """Refuse ids that no usable row has."""
    missing = sorted(set(ids) - found)
    if not missing:
        return
    close = difflib.get_close_matches(missing[0], sorted(found), n=1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    raise DeltapError(
        f"data set {dataset}: no usable row has the id {', '.join(map(repr, missing[:_NAMED]))}{more} that ids or "
        f"ids_file lists{hint}"
    )


def _check_types(types: Iterable[str], questions: Iterable[Question], dataset: str) -> None:
    """Refuse types that no question has."""
    found = {question.question_type for question in questions if question.question_type}
    for name in types:
        if name not in found:
            raise DeltapError(f"data set {dataset}: types: no question is of the type '{name}'{nearest(name, found)}")


def _within(popularity: float | None, limits: PopularityRange) -> bool:
    if popularity is None:
        return False
    return (limits.min is None or limits.min <= popularity) and (limits.max is None or popularity <= limits.max)


def _why(name: str, questions: Iterable[Question]) -> str:
    """Return what a reader has to know about a popularity filter that left nothing."""
    if name != "popularity":
        return ""
    known = [question.popularity for question in questions if question.popularity is not None]
    return f"; their popularity is {min(known):g} to {max(known):g}" if known else "; none of them has a popularity"
