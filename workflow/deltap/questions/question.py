"""A question with its gold answers, whatever file it comes from."""

from dataclasses import dataclass

from deltap.text import normalise


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a data set, with the columns of the questions table that its row decides."""

    question_id: str
    question: str
    gold_answers: tuple[str, ...]
    """At least one, and at least one of them keeps a letter or digit under normalisation; the first is preferred."""
    subject: str | None = None
    property: str | None = None
    popularity: float | None = None
    question_type: str | None = None
    extra: str = "{}"
    """The row's other fields, as a JSON object with sorted keys."""

    def words(self) -> str:
        """Return the normalised question; two questions with the same words are one."""
        return normalise(self.question)

    def subject_words(self) -> str:
        """Return the normalised subject, "" where there is none."""
        return normalise(self.subject or "")

    def preferred_answer(self) -> str:
        """Return the first gold answer that does not normalise to nothing, normalised."""
        return next(words for words in map(normalise, self.gold_answers) if words)
