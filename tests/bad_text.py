"""Texts that go wrong somewhere: what files of questions hold in the wild, and what somebody would put there on
purpose."""

import json

from hypothesis import strategies as st

PIECES = (
    # Control characters, blanks that are none, ends of lines that Python knows and others do not.
    "\0", "\x07", "\x1b[31m", "\x7f", "\x85", "\u00a0", "\u2028", "\u2029", "\v", "\f", "\r\n", "\t", "\u3000",
    # Right-to-left and invisible marks, joiners, a byte-order mark in the middle.
    "\u200f", "\u202e", "\u2066", "\u2069", "\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad",
    # Accents that combine, far too many of them, and characters that change their length under normalisation.
    "e\u0301", "Z\u0351\u036b\u0343\u036a\u0302", "\u0301", "ﬁ", "ß", "İ", "ŉ", "ﷺ", "½", "①", "ſ",
    # Emoji of several code points, scripts without blanks, what is not a character at all.
    "👩‍👩‍👧", "🇿🇦", "東京", "ประเทศไทย", "مصر", "की", "\ufffd", "\ufffe", "\U0010ffff", "\ue000\ue001\ue002", "\ue001",
    # Markers of chat templates and end tokens, which are data in a question; separators of the few-shot prompt.
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<s>", "</s>",
    "<unk>", "[INST]", "[/INST]", "<think>", "</think>", "<|eot_id|>", "<0x0A>", "\n\nQuestion: ", "\nAnswer:",
    # Syntax of what texts are put into.
    "{question}", "{", "}", "{{ bos_token }}", "{% raw %}", "%s", "\\", "\"", "'", "$(touch x)", "; rm -rf x",
    "../", "|", "<script>", "*", "_", "#", ",", "\\n", "[", "]", "null", "NaN", "yes",
)  # fmt: skip
"""Of texts."""
WORDS = ("What is the capital of ", "France", "Who wrote ", "Hamlet", "?", " ", "Paris", "1603", "St. ", "of", "the ")
LONE = ("\ud800", "\udfff", "\udc80")
"""Halves of surrogate pairs, which JSON can write and UTF-8 cannot."""

_any = st.text(min_size=1, max_size=4)  # hypothesis gives no lone surrogates here
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from(WORDS), _any), min_size=1, max_size=8).map("".join)
"""Texts that UTF-8 can write."""
damaged = st.lists(st.one_of(texts, st.sampled_from(LONE)), min_size=1, max_size=4).map("".join)
"""Texts that may hold halves of surrogate pairs."""
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), damaged),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(damaged, inner, max_size=3),
    max_leaves=6,
)
"""Anything that stands in a cell."""


def json_text(value: object) -> str:
    """Return a value as JSON, lone surrogates and NaN as Python writes them."""
    return json.dumps(value)
