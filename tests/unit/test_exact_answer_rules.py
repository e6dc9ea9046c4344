import ast
import inspect
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltap.exact
from deltap.exact.answer import exact_answer
from deltap.exact.answer_rules import span_by_rules
from deltap.exact.words import words_of


def core(answer: str, question: str) -> str | None:
    span = span_by_rules(answer, question)
    return span.text_in(answer) if span else None


@pytest.mark.parametrize(
    "answer",
    [
        "Paris",
        "Leonardo da Vinci",
        "14 December 1972",
        "December 14, 1972",
        "Nashville, Tennessee",
        "Washington, D.C.",
        "Dr. Martin Luther King Jr.",
        "Francis Crick and James Watson",
        "red, white and blue",
        "The Beatles",
        "the liver",
        "van Gogh",
        "In Cold Blood",
        "Gone with the Wind",
        "A Tale of Two Cities",
        "No Country for Old Men",
        "McDonald's",
        "The Who",
        "It",
        "O",
        "8½",
        "3,677",
        "北京",
        "Санкт-Петербург",
        "القاهرة",
        "תל אביב",
        "Kraków",
    ],
)
def test_a_short_answer_is_its_own_core(answer: str) -> None:
    assert core(answer, "Which one is it?") == answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris.", "Paris"),
        ("“Hamlet”.", "Hamlet"),
        ('"The Great Gatsby"', "The Great Gatsby"),
        ("**Paris**", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("`Paris`", "Paris"),
        ("- Paris", "Paris"),
        ("1. Paris\n2. Lyon", "Paris"),
        ("🇫🇷 France!", "France"),
        ("by the liver", "the liver"),
        ("in 1972", "1972"),
        ("Bach (a composer)", "Bach"),
        ("Barack Obama, the 44th president", "Barack Obama"),
        ("Jupiter, which has many moons", "Jupiter"),
        ("Yes, Paris.", "Paris"),
        ("Sure! Paris", "Paris"),
        ("The answer is Paris.", "Paris"),
        ("Answer: Paris", "Paris"),
        ("I think it's Paris.", "Paris"),
    ],
)
def test_marks_lead_ins_and_explanations_are_outside(answer: str, expected: str) -> None:
    assert core(answer, "Which one is it?") == expected


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("What is the capital of Germany?", "Germany's capital is Berlin.", "Berlin"),
        ("What is the capital of France?", "The capital of France is Paris.", "Paris"),
        ("What is the capital of France?", "The capital of France is **Paris**.", "Paris"),
        ("What is the capital of France?", "Yes, Paris is the capital of France.", "Paris"),
        ("In what country is Munich?", "Munich is a city nestled in the heart of Germany", "Germany"),
        ("Who wrote 1984?", "It was written by George Orwell in 1949.", "George Orwell"),
        ("When was 1984 written?", "It was written by George Orwell in 1949.", "1949"),
        ("Who wrote 1984?", "George Orwell wrote 1984.", "George Orwell"),
        ("Who wrote 1984?", "The novel “1984” was written by the British author George Orwell.", "George Orwell"),
        ("Who was the director of Dune?", '"Dune" was directed by Denis Villeneuve, a Canadian.', "Denis Villeneuve"),
        ("Who is the mother of Rama?", "Rama's mother is Kausalya, the queen of Ayodhya.", "Kausalya"),
        (
            "What is John Smith's occupation?",
            "John Smith was an American actor and singer.",
            "an American actor and singer",
        ),
        ("What sport does Lionel Messi play?", "Lionel Messi plays football.", "football"),
        ("What genre is Donovan's Reef?", "It is a comedy film directed by John Ford.", "a comedy film"),
        ("Who produced Franklin?", "Franklin was an inventor who took part in the Revolution.", "an inventor"),
        ("What became of the bridge?", "The bridge was widened as a road tunnel.", "a road tunnel"),
        ("What became of the bridge?", "The bridge was widened.", "widened"),
        ("Who is the father of Ganesha?", "He is a son of the god Shiva and the goddess Parvati.", "Shiva"),
        ("What is the religion of Thomas Cooray?", "Thomas Cooray was a Roman Catholic.", "a Roman Catholic"),
        ("What is the chemical symbol for gold?", "The symbol for gold is Au.", "Au"),
        ("How many states does the US have?", "There are 50 states.", "50"),
        ("How tall is he?", "He is about 1.85 m tall.", "1.85 m"),
        ("When was it released?", "It was released on March 26, 1973, in the UK.", "March 26, 1973"),
        ("Where was Einstein born?", "Einstein was born in 1879 in Ulm, Germany.", "Ulm, Germany"),
        ("Where was he born?", "In Paris", "Paris"),
        ("Who is older, Ann Morton or Terry Lee?", "Ann Morton is older than Terry Lee.", "Ann Morton"),
        ("Were they both American?", "No, they were not.", "No"),
        ("In which stretch of water did the Mary Rose sink?", "The Mary Rose sank in the Solent.", "the Solent"),
        ("What is the capital of Romania?", "Romania", "Romania"),
        ("What is the capital of Romania?", "The capital of Romania is Romania.", "Romania"),
    ],
)
def test_the_core_of_a_sentence_is_what_answers_the_question(question: str, answer: str, expected: str) -> None:
    assert core(answer, question) == expected


@pytest.mark.parametrize("right", ["Berlin", "Bonn"])
def test_right_and_wrong_answers_are_read_at_the_same_place(right: str) -> None:
    answer = f"The capital of Germany is {right}, a city on a river."
    assert core(answer, "What is the capital of Germany?") == right


@pytest.mark.parametrize("answer", ["", "  ", "?!", "…", "🇫🇷", "**", "—"])
def test_an_answer_without_words_has_no_core(answer: str) -> None:
    assert span_by_rules(answer, "Who?") is None


TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "Who",
                "what",
                "is",
                "the",
                "by",
                "Paris,",
                "Orwell",
                '"',
                "(",
                ")",
                "1984",
                "**",
                "No.",
                "é",
                "🇫🇷",
                "語",
                "ไทย",
                "\n",
                "or",
            ]
        ),
        max_size=12,
    ).map(" ".join),
)


@given(TEXTS, TEXTS)
def test_the_core_is_inside_the_answer_and_begins_and_ends_with_a_word(answer: str, question: str) -> None:
    span = span_by_rules(answer, question)
    assert (span is None) == (not words_of(answer))
    if span:
        text = span.text_in(answer)
        assert span.end <= len(answer)
        assert words_of(text[0])
        assert text == text.strip()


def test_gold_answers_cannot_move_the_core() -> None:
    assert list(inspect.signature(exact_answer).parameters) == ["answer", "question", "extractor", "named"]
    assert list(inspect.signature(span_by_rules).parameters) == ["answer", "question"]
    for module in Path(deltap.exact.__file__).parent.glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(node, ast.Name)}
        assert not names & {"gold_answers", "label", "labels"}, module.name


def test_shuffled_gold_answers_give_the_same_cores() -> None:
    rows = [
        {"question": f"What is the capital of {country}?", "answer": f"It is {city}.", "gold_answers": [city, country]}
        for country, city in [("France", "Paris"), ("Italy", "Rome"), ("Japan", "Kyoto"), ("Peru", "Lima")]
    ]
    before = [span_by_rules(row["answer"], row["question"]) for row in rows]
    gold = [row["gold_answers"] for row in rows]
    random.Random(0).shuffle(gold)
    shuffled = [{**row, "gold_answers": answers[::-1]} for row, answers in zip(rows, gold, strict=True)]
    assert [row["gold_answers"] for row in shuffled] != [row["gold_answers"] for row in rows]
    assert [span_by_rules(row["answer"], row["question"]) for row in shuffled] == before
