"""The exact tokens: which words of a question are cut, and which words of an answer are read.

Spans of characters come first (`question`, `answer`), tokens after them (`spans`). Nothing here sees a gold
answer or a label: true and false answers have to be read at the same kind of place.
"""
