"""What to change when a device's memory or the host's runs out."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltap.errors import DeltapError

_WORDS = ("out of memory", "can't allocate memory", "Cannot allocate memory", "not enough memory")


@contextmanager
def out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Raise DeltapError with ``what`` does not fit, where, and the ``remedy``, if memory runs out inside the block."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        where = "the GPU's memory" if "CUDA" in str(error) else "the host's memory"
        raise DeltapError(f"{what} does not fit {where}; {remedy} ({str(error).splitlines()[0][:200]})") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that a device's memory or the host's ran out."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _WORDS)
