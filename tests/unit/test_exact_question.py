import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltap.exact.question import Extractor, exact_question
from deltap.exact.question_fields import POPQA_TEMPLATES
from deltap.exact.spans import Span
from deltap.exact.words import words_of
from deltap.text import normalise


@pytest.fixture(scope="module")
def popqa(shared_data: Path) -> list[dict[str, str]]:
    with (shared_data / "popqa.tsv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def texts(
    question: str, subject: str | None = None, property_name: str | None = None, extractor: Extractor = "auto"
) -> list[str]:
    found = exact_question(question, subject, property_name, extractor)
    return [span.text_in(question) for span in found.spans] if found else []


def characters(spans: tuple[Span, ...]) -> set[int]:
    return {index for span in spans for index in range(span.start, span.end)}


@pytest.mark.parametrize(
    ("question", "subject", "property_name", "expected"),
    [
        ("What is Boulsa the capital of?", "Boulsa", "capital of", ["Boulsa", "capital"]),
        ("In what city was György Kárpáti born?", "György Kárpáti", "place of birth", ["city", "György Kárpáti born"]),
        ("What is Lord Hamilton's occupation?", "Lord Hamilton", "occupation", ["Lord Hamilton", "occupation"]),
        ("What is the capital of Capital?", "Capital", "capital", ["capital", "Capital"]),
        ("Who was the director of Director?", "Director", "director", ["director", "Director"]),
        ("What is Who's occupation?", "Who", "occupation", ["Who", "occupation"]),
        ("Who is the author of It!?", "It!", "author", ["author", "It!"]),
        ("Who is the author of Reading Capital (work level)?", "Reading Capital (work level)", "author", None),
        ('Who was the director of "Crocodile" Dundee?', '"Crocodile" Dundee', "director", None),
        ("What sport does 1952 NFL season play?", "1952 NFL season", "sport", ["sport", "1952 NFL season play"]),
        ("Who is the father of 明治天皇?", "明治天皇", "father", ["father", "明治天皇"]),
        ("In what country is 🍉 Street?", "🍉 Street", "country", ["country", "🍉 Street"]),
        ("what is the capital of rome?", "Rome", "capital", ["capital", "rome"]),
        (" What is the color of Côte d’Azur?", "Côte d'Azur", "color", ["color", "Côte d’Azur"]),
        ("Dune has which director?", "Dune", "director", ["Dune", "director"]),
        ("Tell me where Bach was born.", "Bach", "place_of_birth", ["Bach", "born"]),
        ("How long is the Nile?", "Nile", "length", ["long", "Nile"]),
        ("How long is the Nile?", "Nile", None, ["long", "Nile"]),
    ],
)
def test_fields_find_subject_and_property(
    question: str, subject: str, property_name: str | None, expected: list[str] | None
) -> None:
    found = exact_question(question, subject, property_name, "fields")
    assert found is not None
    assert found.source == "fields"
    expected = [property_name or "", subject] if expected is None else expected
    assert [span.text_in(question) for span in found.spans] == expected


def test_a_subject_inside_a_longer_word_is_none() -> None:
    assert exact_question("In what country is Tirana?", "Iran", "country", "fields") is None
    found = exact_question("In what country is Tirana?", "Iran", "country", "auto")
    assert found is not None
    assert found.source == "rules"


def test_rules_use_the_question_alone() -> None:
    question = "What is the capital of Capital?"
    assert exact_question(question, "What", "What", "rules") == exact_question(question, None, None, "auto")


def test_every_question_of_popqa_is_read_by_its_fields(popqa: list[dict[str, str]]) -> None:
    for row in popqa:
        found = exact_question(row["question"], row["subj"], row["prop"], "auto")
        assert found is not None
        assert found.source == "fields"
        # What is left of the question is exactly what its template says outside the brackets.
        left = [c for i, c in enumerate(row["question"]) if i not in characters(found.spans)]
        template = POPQA_TEMPLATES[row["prop"]].replace("{}", "")
        outside = "".join(part.partition("]")[2] if "]" in part else part for part in template.split("["))
        assert "".join(left).replace(" ", "") == outside.replace(" ", "")


def test_rules_agree_with_the_fields_of_popqa(popqa: list[dict[str, str]]) -> None:
    shared = by_rules = by_fields = 0
    for row in popqa:
        fields = exact_question(row["question"], row["subj"], row["prop"], "fields")
        rules = exact_question(row["question"], None, None, "rules")
        assert fields is not None
        assert rules is not None
        shared += len(characters(fields.spans) & characters(rules.spans))
        by_rules += len(characters(rules.spans))
        by_fields += len(characters(fields.spans))
    precision, recall = shared / by_rules, shared / by_fields
    assert 2 * precision * recall / (precision + recall) >= 0.95


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which tennis player founded the fashion label Aneres?", ["tennis player founded", "fashion label Aneres"]),
        ("Who was the director of The Man Who Knew Too Much?", ["director", "The Man Who Knew Too Much"]),
        ('Who wrote "The Cat in the Hat"?', ["wrote", "The Cat in the Hat"]),
        ('"Who wrote ""The Cat in the Hat""?"', ["wrote", "The Cat in the Hat"]),
        ("Who said ‘I am not amused’?", ["said", "I am not amused"]),
        ("Who is older, Annie Morton or Terry Richardson?", ["older", "Annie Morton", "Terry Richardson"]),
        ("2014 S/S was formed by who?", ["2014 S/S", "formed"]),
        ("Zamalek is a top football club from which African country?", None),
        ("In which year did Foinavon win the Grand National?", ["year", "Foinavon win", "Grand National"]),
        ("Octavian was one of two in 43 BC. Who was the third?", ["Octavian", "43 BC", "third"]),
        ("who was the ruler of england in 1616", ["ruler", "england", "1616"]),
        ("WHO WROTE HAMLET?", ["WROTE HAMLET"]),
        ("What Is The Capital Of France?", ["Capital", "France"]),
        ("What’s the capital of Côte d’Ivoire?", ["capital", "Côte d’Ivoire"]),
        ("Who was the father of Joan of Arc?", ["father", "Joan of Arc"]),
        ("What is G. Karunakara Reddy's occupation?", ["G. Karunakara Reddy", "occupation"]),
        ("Name the author of Emma.", ["author", "Emma"]),
        ("Paris", ["Paris"]),
        ("Who is it?", ["it"]),
    ],
)
def test_rules_find_names_titles_numbers_and_the_property(question: str, expected: list[str] | None) -> None:
    if expected is None:
        expected = ["Zamalek", "top football club", "African country"]
    assert texts(question) == expected


@pytest.mark.parametrize(
    "question",
    ["Какой город столица Франции?", "ما هي عاصمة فرنسا؟", "法国的首都是哪里？", "ฝรั่งเศส เมืองหลวง", "מהי בירת צרפת?"],
)
def test_other_scripts_give_words_of_the_question_but_not_all(question: str) -> None:
    found = texts(question)
    assert found
    assert "".join(map(normalise, found)).replace(" ", "") != normalise(question).replace(" ", "")


@pytest.mark.parametrize("question", ["", "   ", "?!", "🇿🇦?", "—"])
def test_a_question_without_words_has_no_exact_question(question: str) -> None:
    assert exact_question(question, None, None, "auto") is None


QUESTIONS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "Who",
                "what",
                "is",
                "the",
                "capital",
                "of",
                "Paris,",
                '"',
                "'",
                "(",
                ")",
                "1984",
                "’s",
                "é",
                "🇫🇷",
                "語",
                "ไทย",
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@given(QUESTIONS, st.one_of(st.none(), st.text(max_size=8)), st.sampled_from([None, "capital", "capital of", "x"]))
def test_spans_are_inside_the_question_in_order_and_apart(
    question: str, subject: str | None, property_name: str | None
) -> None:
    found = exact_question(question, subject, property_name, "auto")
    assert found or not words_of(question)
    for span in found.spans if found else ():
        assert span.end <= len(question)
        assert span.text_in(question) == span.text_in(question).strip()
    for one, other in zip(found.spans, found.spans[1:], strict=False) if found else ():
        assert one.end < other.start


@given(QUESTIONS)
def test_rules_never_take_every_word(question: str) -> None:
    found = exact_question(question, None, None, "rules")
    assert (found is None) == (not words_of(question))
    if found and len(words_of(question)) > 1:
        outside = "".join(c for i, c in enumerate(question) if i not in characters(found.spans))
        assert words_of(outside)


@pytest.mark.parametrize("name", ["triviaqa.flashrag.jsonl", "NQ-open.dev.jsonl", "hotpotqa.simplified.json"])
def test_real_questions_keep_their_question_word_outside(shared_data: Path, name: str) -> None:
    text = (shared_data / name).read_text(encoding="utf-8")
    rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    for question in (row["question"] for row in rows):
        found = exact_question(question, None, None, "auto")
        assert found is not None
        first = normalise(question).split()[0]
        if first in ("who", "what", "which", "when", "where", "how"):
            outside = "".join(c if i not in characters(found.spans) else " " for i, c in enumerate(question))
            assert normalise(outside).split()[0] == first
