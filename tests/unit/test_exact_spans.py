import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltap.exact.spans import Span, merged, occurrences, tokens_of_span

TEXTS = st.text(st.sampled_from("ab .'’éßİ🇫🇷語"), max_size=30)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, 30))
    return Span(start, start + draw(st.integers(1, 10)))


@given(spans(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1]))))
def test_tokens_of_a_span_are_those_that_share_a_character_with_it(span: Span, offsets: list[tuple[int, int]]) -> None:
    characters = set(range(span.start, span.end))
    expected = [index for index, (start, end) in enumerate(offsets) if characters & set(range(start, end))]
    assert tokens_of_span(span, offsets) == expected


def test_special_tokens_never_belong_to_a_span() -> None:
    assert tokens_of_span(Span(0, 4), [(0, 0), (0, 4), (2, 2), (4, 4)]) == [1]


def test_a_token_with_a_blank_before_its_word_and_a_full_stop_behind_it_belongs_to_the_word() -> None:
    # "In", " Rome", ".\n"
    assert tokens_of_span(Span(3, 7), [(0, 2), (2, 7), (7, 9)]) == [1]
    assert tokens_of_span(Span(3, 8), [(0, 2), (2, 7), (7, 9)]) == [1, 2]


def test_all_the_byte_tokens_of_one_character_belong_to_it() -> None:
    assert tokens_of_span(Span(1, 2), [(0, 1), (1, 2), (1, 2), (1, 2), (2, 3)]) == [1, 2, 3]


@pytest.mark.parametrize(("start", "end"), [(3, 3), (3, 2), (-1, 2)])
def test_a_span_is_never_empty(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="start < end"):
        Span(start, end)


def test_spans_with_only_blanks_between_them_become_one() -> None:
    text = "capital of  old Rome"
    assert merged([Span(16, 20), Span(12, 15), Span(0, 7)], text) == (Span(0, 7), Span(12, 20))


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("Iran", "Is Tirana in Iran?", ["Iran"]),
        ("Iran", "Is Tirana in Albania?", []),
        ("capital", "the capital of Capital", ["capital"]),
        ("Rome", "what is rome", ["rome"]),
        ("It!", "Who is the author of It!?", ["It!"]),
        ("(500) Days", "Who made (500) Days?", ["(500) Days"]),
        ("Straße", "the STRASSE here", ["STRASSE"]),
        ("Lady's", "the Lady’s name", ["Lady’s"]),
        ("Krako\u0301w", "the mayor of Krak\u00f3w", ["Krak\u00f3w"]),
        ("Krakow", "the mayor of Krak\u00f3w", []),
        ("Cafe", "a Cafe\u0301 here", []),
        ("北京", "北京市在哪里", ["北京"]),
        ("🇫🇷", "the 🇫🇷 flag", ["🇫🇷"]),
        ("", "anything", []),
    ],
)
def test_a_phrase_is_found_on_word_boundaries_and_with_its_own_letters_first(
    phrase: str, text: str, found: list[str]
) -> None:
    assert [span.text_in(text) for span in occurrences(phrase, text)] == found


@given(TEXTS, TEXTS)
def test_places_of_a_phrase_are_inside_the_text(phrase: str, text: str) -> None:
    assert all(span.end <= len(text) for span in occurrences(phrase, text))


@pytest.mark.parametrize("text", ["Who is from Rome?", "Æthelburh 🇫🇷👩‍🚀 語", "ما هي عاصمة فرنسا؟", "Cafe\u0301 [x]"])
def test_tokens_of_a_span_are_the_fewest_that_hold_it(tokenizer, text: str) -> None:
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            wanted = text[start:end]
            tokens = tokens_of_span(Span(start, end), encoded["offset_mapping"])
            assert wanted in tokenizer.decode([encoded["input_ids"][token] for token in tokens])
            if wanted.strip() == wanted and len(tokens) > 1:
                for fewer in (tokens[1:], tokens[:-1]):
                    assert wanted not in tokenizer.decode([encoded["input_ids"][token] for token in fewer])
