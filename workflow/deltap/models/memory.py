"""What to change when a device's memory or the host's runs out."""

from collections.abc import Iterator
from contextlib import contextmanager

from deltap.errors import DeltapError

_WORDS = ("out of memory", "can't allocate memory", "Cannot allocate memory", "not enough memory", "ALLOC_FAILED")


@contextmanager
def out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Raise DeltapError with ``what`` does not fit, where, and the ``remedy``, if memory runs out inside the block."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise does_not_fit(error, what, remedy) from error


def does_not_fit(error: BaseException, what: str, remedy: str) -> DeltapError:
    """Return the error that says ``what`` does not fit which memory, and the ``remedy``."""
    where = "the GPU's memory" if "CUDA" in str(error) else "the host's memory"
    return DeltapError(f"{what} does not fit {where}; {remedy} ({(str(error) or 'MemoryError').splitlines()[0][:200]})")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that a device's memory or the host's ran out."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in _WORDS)
