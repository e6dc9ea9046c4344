"""The hashes that decide which questions are asked, in which order and in which split.

They are functions of the data set's name and of the normalised text alone, so that format and order of the file and
the size of the sample move nothing.
"""

from deltap.files import digest
from deltap.settings import Splits


def question_hash(salt: str, dataset: str, words: str) -> str:
    """Return the 16 hexadecimal digits that decide sample and order of a question with these normalised words."""
    return digest([salt, dataset, words])


def split_of(salt: str, dataset: str, key: str, shares: Splits) -> str:
    """Return ``train``, ``validation`` or ``test`` for everything that has the same normalised key."""
    point = int(digest([salt, dataset, "split", key]), 16) / 2**64
    if point < shares.train:
        return "train"
    return "validation" if point < shares.train + shares.validation else "test"
