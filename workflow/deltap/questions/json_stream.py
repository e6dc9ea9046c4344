"""JSON documents of any size, decoded element by element."""

import itertools
import json
from collections.abc import Iterator
from typing import Any, TextIO

from deltap.errors import DeltapError

_DECODER = json.JSONDecoder()
_BLANKS = " \t\n\r"
_CHUNK = 1 << 20  # characters
LONGEST = 1 << 25
"""Characters that a value, or a row of another text, may have; a small file may unpack to endless ones."""


def elements(stream: TextIO, name: str) -> Iterator[Any]:
    """Yield the elements of the array of a text that `is_document`.

    ``name`` is the file, for messages. Raises DeltapError with the element's number (from 1) where the text breaks.
    """
    text = _Text(stream)
    bare = text.peek() == "["
    if not bare:
        _seek_data(text)
    text.skip()
    if text.peek() == "]":
        return
    for number in itertools.count(1):
        try:
            element = text.value()
        except (ValueError, RecursionError) as error:
            raise DeltapError(f"{name}: element {number} is not JSON ({error}); is the file cut off?") from None
        yield element
        mark = text.skip()
        if mark == "]":
            break
        if mark != ",":
            found = repr(mark) if mark else "the end of the file"
            raise DeltapError(f"{name}: after element {number}: expected ',' or ']', found {found}")
    if bare and text.peek():
        raise DeltapError(f"{name}: after element {number}: the array ends, and then comes {text.peek()!r}")


def is_document(stream: TextIO) -> bool:
    """Tell whether the text is a JSON array or an object with the array ``Data``, rather than one object per line."""
    text = _Text(stream)
    return text.peek() == "[" or _seek_data(text)


def _seek_data(text: "_Text") -> bool:
    """Go to the ``[`` of the array ``Data`` in the object that starts here; False where there is none."""
    if text.skip() != "{":
        return False
    try:
        while text.peek() == '"':
            key = text.value()
            if text.skip() != ":":
                return False
            if key == "Data" and text.peek() == "[":
                return True
            text.value()
            if text.skip() != ",":
                return False
    except (ValueError, RecursionError):
        pass
    return False


class _Text:
    """A JSON text of which only the part that is being decoded is held in memory."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.held = ""
        self.position = 0

    def peek(self) -> str:
        """Return the next character that is not blank, "" at the end."""
        while True:
            while self.position < len(self.held) and self.held[self.position] in _BLANKS:
                self.position += 1
            if self.position < len(self.held):
                return self.held[self.position]
            if not self._read(_CHUNK):
                return ""

    def skip(self) -> str:
        """Return the next character that is not blank, and go past it."""
        character = self.peek()
        self.position += len(character)
        return character

    def value(self) -> Any:
        """Return the value that starts here, and go past it; ValueError where it is no JSON."""
        self.peek()
        size = _CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self.held, self.position)
            except ValueError:
                if len(self.held) - self.position > LONGEST:
                    raise ValueError(f"longer than {LONGEST:,} characters") from None
                if not self._read(size):
                    raise
            else:
                # The beginning of a number is a number too: 1 of 1.5, 1 of 1e9.
                whole = end < len(self.held) and self.held[end] not in ".eE"
                if whole or not self._read(size):
                    self.position = end
                    return value
            size *= 2  # so that a long value is not decoded again for every chunk

    def _read(self, size: int) -> bool:
        """Hold ``size`` more characters, and forget those before the position; False at the end of the text."""
        more = self.stream.read(size)
        if more:
            self.held = self.held[self.position :] + more
            self.position = 0
        return bool(more)
