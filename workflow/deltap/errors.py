"""Errors that a user can mend: one sentence that names the file, row or key, and the remedy."""

import difflib
from collections.abc import Iterable


class DeltapError(Exception):
    """Something in the input is wrong and its owner can mend it.

    Scripts print the message alone, without a traceback, and exit with status 1.
    """


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return a hint such as ``"; did you mean 'popqa'? (valid: nq, popqa)"`` for a name that is not valid."""
    names = sorted(map(str, valid))
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    guess = f"; did you mean '{close[0]}'?" if close else ""
    return f"{guess} (valid: {', '.join(names) or 'none'})"
