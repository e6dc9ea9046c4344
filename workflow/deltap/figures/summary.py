"""Mean ΔP (SUMMARY) from whichever table there is: a summary, the tidy table, or the anchors."""

import pandas as pd
import pyarrow as pa

from deltap.errors import DeltapError
from deltap.figures.sources import Part
from deltap.settings import ANCHORS, BootstrapSettings, DeltaPStage, Grouping, ReferenceClass
from deltap.tables import DELTA_P, read_metadata


def summarised(
    part: Part,
    grouping: Grouping,
    reference_class: ReferenceClass | None,
    interval: float | None,
    bootstrap: BootstrapSettings,
) -> pd.DataFrame:
    """Return the SUMMARY rows of one grouping.

    ``reference_class`` and ``interval`` may be None: those that the table was made with, else ``predicted`` and that
    of ``bootstrap``. Raises DeltapError where the table does not carry another one.
    """
    if part.name == "delta_p_summary":
        _check_summary(part, reference_class, interval)
        return part.rows.to_pandas()
    from deltap.delta_p import each_series, summarise  # a summary needs none of it

    bootstrap = bootstrap if interval is None else bootstrap.model_copy(update={"level": interval})
    tables = [summarise(series, bootstrap) for series in each_series([samples(part, grouping, reference_class)])]
    if not tables:
        raise DeltapError(f"{part.path}: no rows to draw")
    return pa.concat_tables(tables).to_pandas()


def samples(part: Part, grouping: Grouping, reference_class: ReferenceClass | None) -> pa.Table:
    """Return DELTA_P rows of one grouping from the tidy table or the anchors, series by series."""
    from deltap.delta_p import each_series, tidy, with_reference_class

    if part.name == "delta_p":
        return part.rows if reference_class is None else with_reference_class(part.rows, reference_class, part.path)
    rows = [
        tidy(
            series,
            DeltaPStage(anchor=anchor, groupings=(grouping,), reference_class=reference_class or "predicted"),
        )
        for series in each_series([part.rows])
        for anchor in ANCHORS
    ]
    return pa.concat_tables([DELTA_P.empty_table(), *rows])


def _check_summary(part: Part, reference_class: ReferenceClass | None, interval: float | None) -> None:
    settings = read_metadata(part.path).get("provenance", {}).get("settings", {})
    remedy = "give the run's anchors.parquet instead"
    if reference_class is not None:
        raise DeltapError(f"{part.path}: a summary has its reference class already; {remedy}")
    if interval is not None and interval != settings.get("level"):
        raise DeltapError(f"{part.path}: a summary has its interval already; {remedy}")
