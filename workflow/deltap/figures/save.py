"""Writing figures: whole files, without a date, that say what made them."""

from pathlib import Path
from typing import get_args

from matplotlib.figure import Figure

from deltap.errors import DeltapError, nearest
from deltap.figures.style import style
from deltap.files import whole
from deltap.settings import Format

# Format → metadata key that holds the description, and further entries. A date would make every file differ.
_METADATA: dict[str, tuple[str, dict[str, str | None]]] = {
    "png": ("Description", {}),
    "pdf": ("Subject", {"CreationDate": None}),
    "svg": ("Description", {"Date": None}),
}


def save(figure: Figure, path: str | Path, description: str) -> None:
    """Write ``figure`` as PNG (300 dpi), PDF or SVG, by the suffix of ``path``.

    ``description`` goes into the file's metadata. The same figure and description give the same bytes.
    """
    kind = file_format(path)
    key, metadata = _METADATA[kind]
    with style(), whole(path) as temporary:
        figure.savefig(temporary, format=kind, metadata={key: description, **metadata})


def file_format(path: str | Path) -> str:
    """Return the format that a figure's file name asks for; raise DeltapError when it is none of ours."""
    kind = Path(path).suffix.lower().removeprefix(".")
    formats = get_args(Format)
    if kind not in formats:
        raise DeltapError(f"{path}: figures are written as {', '.join(formats)}, not {kind!r}{nearest(kind, formats)}")
    return kind
