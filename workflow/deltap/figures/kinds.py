"""Every kind of figure: which rows it takes and who draws it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from deltap.errors import DeltapError
from deltap.figures import auroc, controls, delta_p, distribution, exclusions, flip_rate, groups
from deltap.figures.save import file_format, save
from deltap.figures.sources import Labels, Part, read, read_labels, together
from deltap.figures.summary import samples, summarised
from deltap.files import file_sha256, write_text
from deltap.provenance import provenance
from deltap.settings import (
    SAME_GROUPS,
    AurocFigure,
    ControlsFigure,
    DeltaPFigure,
    DistributionFigure,
    ExclusionsFigure,
    FigureEntry,
    FlipRateFigure,
    GroupsFigure,
    PlotStage,
    TableSource,
)

_DRAW: dict[str, Callable[..., Figure]] = {
    "delta_p": delta_p.draw,
    "auroc": auroc.draw,
    "flip_rate": flip_rate.draw,
    "delta_p_distribution": distribution.draw,
    "groups": groups.draw,
    "exclusions": exclusions.draw,
    "controls": controls.draw,
}


class Content:
    """The rows of one figure, ready to be drawn."""

    def __init__(
        self,
        entry: FigureEntry,
        sources: Sequence[TableSource],
        stage: PlotStage,
        labels: Labels | None = None,
        notice: str | None = None,
    ) -> None:
        """Read what ``entry`` shows from ``sources``.

        ``labels`` come before those in the tables' metadata. ``notice`` is written above the figure.

        Raises DeltapError when a table lacks what is needed (see `deltap.figures.sources.read`), or nothing is left.
        """
        parts = [part for shown in _each_cut(entry) for part in read(sources, shown)]
        self.paths = list(dict.fromkeys(part.path for part in parts))
        known = read_labels(self.paths)
        names = {kind: {**(labels or {}).get(kind, {}), **known[kind]} for kind in known}
        if isinstance(entry, DeltaPFigure) and entry.anchors is None:
            entry = entry.model_copy(update={"anchors": stage.anchors})
        frames = [(part.source, _rows(part, entry, stage)) for part in parts]
        self.rows, self.labels, self.entry = together(frames, entry, names)
        self.notice = notice or _lacking(self.rows, names, entry)

    def draw(self) -> Figure:
        """Return the figure."""
        return _DRAW[self.entry.kind](self.rows, self.entry, self.labels, self.notice)

    def page(self, description: str) -> str:
        """Return the interactive figure, which only the kind ``delta_p`` has, as the text of an HTML file."""
        if not isinstance(self.entry, DeltaPFigure):
            raise DeltapError(f"a figure of kind {self.entry.kind} has no interactive version: use png, pdf or svg")
        from deltap.figures.interactive import page  # altair, which other figures need not wait for

        return page(self.rows, self.entry, self.labels, description, self.notice)


def _lacking(rows: pd.DataFrame, labels: Labels, entry: FigureEntry) -> str | None:
    """Return a note about the data sets of the tables' run that have nothing to draw, None where all have."""
    there = set(rows["dataset"].astype(str))
    missing = [label for slug, label in labels["dataset"].items() if slug not in there]
    return f"Without curve: {', '.join(missing)}" if missing and entry.datasets is None else None


def write(
    script: str | Path,
    entry: FigureEntry,
    stage: PlotStage,
    sources: Sequence[TableSource],
    files: Sequence[Path],
    labels: Labels | None = None,
    notice: str | None = None,
) -> None:
    """Write one figure to each of ``files``, in the format of its suffix, with what made it (``script``) in it.

    Raises DeltapError as `Content` does, and for a suffix that is no format.
    """
    content = Content(entry, sources, stage, labels, notice)
    formats = [file_format(path) for path in files]
    settings = stage.model_copy(update={"figures": {files[0].stem: entry}}).model_dump(mode="json")
    tables = [file_sha256(path) for path in content.paths]
    made_by = json.dumps(provenance(script, settings, tables=tables), sort_keys=True)
    figure = content.draw() if set(formats) - {"html"} else None
    for path, kind in zip(files, formats, strict=True):
        if kind == "html":
            write_text(path, content.page(made_by))
        elif figure:
            save(figure, path, made_by)


def _each_cut(entry: FigureEntry) -> list[FigureEntry]:
    """Return the figure once for each intervention that it shows: its own, and the one beside it."""
    if not isinstance(entry, DeltaPFigure) or not entry.beside:
        return [entry]
    return [entry, entry.model_copy(update={"intervention": entry.beside, "estimate": SAME_GROUPS})]


def _rows(part: Part, entry: FigureEntry, stage: PlotStage) -> pd.DataFrame:
    match entry:
        case DeltaPFigure():
            # Anchors have no reference class yet.
            reference = entry.reference_class or (stage.reference_class if part.name == "anchors" else None)
            return summarised(part, entry.grouping or "per_layer", reference, entry.interval, stage.bootstrap)
        case FlipRateFigure():
            return summarised(part, "per_layer", None, None, stage.bootstrap)
        case DistributionFigure() | GroupsFigure():
            return _at_reference(part, entry, stage)
        case AurocFigure() | ExclusionsFigure() | ControlsFigure():
            return part.rows.to_pandas()
    raise AssertionError(entry)


def _at_reference(part: Part, entry: DistributionFigure | GroupsFigure, stage: PlotStage) -> pd.DataFrame:
    rows = part.rows.filter(part.rows["layer"].to_numpy() == part.rows["k_star"].to_numpy())
    chosen = getattr(entry, "reference_class", None) or stage.reference_class
    return samples(part._replace(rows=rows), "reference", chosen).to_pandas()
