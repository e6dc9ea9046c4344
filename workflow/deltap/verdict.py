"""The verdict: what the published figure claims, tested on a run's own numbers.

Every claim is a statistic of the mean curves of ΔP and a range in which it has to lie. Its interval comes from the
bootstrap over samples: the statistic is computed anew from the curves of each draw. The claim *holds* where the
interval lies inside the range, *does not hold* where it lies outside, and nobody *can tell* where it reaches over an
end, or where too few samples were left. Steps between layers grow with the noise of the curves: with few samples they
say more about the noise than about the model.

A layer counts for a group only if it has at least ``min_n`` samples there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltap import markdown
from deltap.settings import ANCHORS, BootstrapSettings, VerdictSettings
from deltap.statistics import resampling_counts

HOLDS, FAILS, CANNOT_TELL, NOT_APPLICABLE = "holds", "does not hold", "cannot tell", "not applicable"
_FEW_LAYERS = 5  # for a correlation
_CLEAR = 0.1  # variance from draw to draw against that over the layers, at most


@dataclass(frozen=True)
class Curves:
    """Mean ΔP of the groups of one model and data set over the layers, in percentage points."""

    model: str
    dataset: str
    means: Mapping[str, np.ndarray]
    """For each anchor shape (1 + draws, layers): the estimate, then each bootstrap draw; NaN where n is too small."""
    n: Mapping[str, np.ndarray]
    """For each anchor shape (layers,)."""

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(next(iter(self.n.values())))

    def between(self, start: float, end: float) -> slice:
        """Return the layers from depth ``start`` to ``end``, as shares of the last layer's number."""
        last = self.layers - 1
        return slice(int(np.ceil(start * last - 1e-9)), int(np.floor(end * last + 1e-9)) + 1)

    def samples(self, anchor: str, layers: slice = slice(None)) -> int | None:
        """Return the median number of samples over ``layers``."""
        chosen = self.n[anchor][layers]
        return int(np.median(chosen)) if len(chosen) else None


def curves(table: pa.Table, settings: VerdictSettings, bootstrap: BootstrapSettings) -> Curves | None:
    """Return the curves of one series' DELTA_P rows, None where it has none of the judged site and position.

    Rows of controls are left out.
    """
    model, dataset = (str(table[name][0]) for name in ("model", "dataset"))
    wanted = {name: getattr(settings, name) for name in ("site", "position", "grouping")}
    for name, value in {**wanted, "intervention": "exact_question", "estimate": "plain"}.items():
        table = table.filter(pc.equal(table[name].cast(pa.string()), value))
    if not len(table):
        return None
    frame = table.select(["anchor", "layer", "question_id", "delta_p"]).to_pandas()
    ids = np.unique(frame["question_id"].to_numpy(dtype=str))
    draws = np.vstack([np.ones(len(ids)), resampling_counts(len(ids), bootstrap)])
    layers = int(frame["layer"].max()) + 1
    means: dict[str, np.ndarray] = {}
    numbers: dict[str, np.ndarray] = {}
    for anchor in ANCHORS:
        part = frame[frame["anchor"] == anchor]
        where = np.searchsorted(ids, part["question_id"].to_numpy(dtype=str)), part["layer"].to_numpy()
        values, member = np.zeros((len(ids), layers)), np.zeros((len(ids), layers))
        values[where], member[where] = part["delta_p"], 1
        numbers[anchor] = member.sum(axis=0).astype(int)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (draws @ values) / (draws @ member)
        mean[:, numbers[anchor] < settings.min_n] = np.nan
        means[anchor] = mean
    return Curves(model, dataset, means, numbers)


@dataclass(frozen=True)
class Finding:
    """What became of one claim."""

    claim: str
    model: str | None
    dataset: str | None
    statistic: str
    """What was computed."""
    value: float | None
    low: float | None
    """End of the interval, as the next one."""
    high: float | None
    n: int | None
    """Samples behind it: the median over the layers that it uses, the least over data sets."""
    lower: float | None
    """The claim holds from here; null: no end."""
    upper: float | None
    """The claim holds up to here; null: no end."""
    verdict: str


Estimate = tuple[float, float, float]
"""A statistic and the ends of its interval."""


def findings(found: Sequence[Curves], settings: VerdictSettings, level: float) -> list[Finding]:
    """Return a finding for every claim, model and data set; ``level`` is that of the intervals."""
    models = list(dict.fromkeys(item.model for item in found))
    result = []
    for item in found:
        for judge in (_falls, _stays, _start, _depth, _level, _noise):
            result.append(judge(item, settings, level))
    for model in models:
        of_model = [item for item in found if item.model == model]
        result += [_agree(of_model, settings, level), _lowest(of_model, settings, level)]
    result.append(_larger(found, settings, level))
    order = list(CLAIMS)
    return sorted(result, key=lambda finding: order.index(finding.claim))


CLAIMS = {
    "falls": "Dichotomy: Q-Anchored falls far below zero with depth",
    "stays": "Dichotomy: A-Anchored stays near zero at every layer",
    "start": "Start: every curve starts near zero",
    "depth": "Depth: most of the fall comes early",
    "level": "Level: Q-Anchored reaches what was published for the model",
    "larger": "The larger model lies lower",
    "agree": "The data sets follow each other",
    "lowest": "One data set (PopQA) is usually the lowest",
    "noise": "Q-Anchored jumps from layer to layer, A-Anchored is smooth",
}


def _finding(
    claim: str,
    curves: Curves | Sequence[Curves],
    statistic: str,
    estimate: Estimate | None,
    n: int | None,
    lower: float | None = None,
    upper: float | None = None,
    applies: bool = True,
) -> Finding:
    """Decide; ``estimate`` is None where the statistic cannot be computed."""
    items = [curves] if isinstance(curves, Curves) else curves
    models, datasets = ({getattr(item, name) for item in items} for name in ("model", "dataset"))
    value, low, high = estimate if estimate and applies else (None, None, None)
    if not applies:
        verdict = NOT_APPLICABLE
    elif low is None or high is None:
        verdict = CANNOT_TELL
    elif (lower is None or low >= lower) and (upper is None or high <= upper):
        verdict = HOLDS
    elif (lower is not None and high < lower) or (upper is not None and low > upper):
        verdict = FAILS
    else:
        verdict = CANNOT_TELL
    return Finding(
        claim,
        models.pop() if len(models) == 1 else None,
        datasets.pop() if len(datasets) == 1 and len(items) == 1 else None,
        statistic,
        value,
        low,
        high,
        n,
        lower,
        upper,
        verdict,
    )


def _estimate(draws: np.ndarray | None, level: float) -> Estimate | None:
    """Return a statistic with its percentile interval, from its estimate and its value in every draw.

    None where there is no estimate, or where too many draws have none.
    """
    if draws is None or not np.isfinite(draws[0]) or np.isfinite(draws[1:]).mean() <= level:
        return None
    tail = 100 * (1 - level) / 2
    low, high = np.nanpercentile(draws[1:], [tail, 100 - tail])
    return float(draws[0]), float(low), float(high)


def _mean(curve: np.ndarray, layers: slice) -> np.ndarray:
    """Return the mean over the layers that have enough samples, shape (1 + draws,); NaN where less than half have."""
    chosen = curve[:, layers]
    enough = np.isfinite(chosen[0])
    if not chosen.shape[1] or enough.mean() < 0.5:
        return np.full(len(chosen), np.nan)
    return chosen[:, enough].mean(axis=1)


def _falls(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    deep = item.between(0.5, 1)
    draws = _mean(item.means["q_anchored"], deep)
    n = item.samples("q_anchored", deep)
    return _finding(
        "falls",
        item,
        "mean ΔP of Q-Anchored over the deeper half",
        _estimate(draws, level),
        n,
        upper=settings.far_below,
    )


def _stays(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    curve = item.means["a_anchored"]
    curve = curve[:, np.isfinite(curve[0])]
    estimate = None
    if curve.shape[1]:
        # The largest of many means is far from zero by chance alone. So each layer has its own interval: all of them
        # have to lie near zero, or one of them, widened for the number of layers (Bonferroni), has to lie away from it.
        tail = 100 * (1 - level) / 2
        narrow = np.nanpercentile(curve[1:], [tail, 100 - tail], axis=0)
        wide = np.nanpercentile(curve[1:], [tail / curve.shape[1], 100 - tail / curve.shape[1]], axis=0)
        away = np.where((wide[0] < 0) & (wide[1] > 0), 0, np.abs(wide).min(axis=0))
        estimate = float(np.abs(curve[0]).max()), float(away.max()), float(np.abs(narrow).max())
    statistic = "largest |ΔP| of A-Anchored; from: the largest that is certain, to: the largest that is possible"
    return _finding("stays", item, statistic, estimate, item.samples("a_anchored"), upper=settings.near_zero)


def _start(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    draws = np.max([np.abs(item.means[anchor][:, 0]) for anchor in ANCHORS], axis=0)  # NaN where one of them is
    n = min(int(item.n[anchor][0]) for anchor in ANCHORS)
    statistic = "larger |ΔP| of the two at layer 0"
    return _finding("start", item, statistic, _estimate(draws, level), n, upper=settings.near_zero)


def _depth(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    curve = item.means["q_anchored"]
    by, end = item.between(settings.early - 0.1, settings.early), item.between(2 / 3, 1)
    reached, fall = _mean(curve, by), _mean(curve, end)
    n = item.samples("q_anchored", end)
    final = _estimate(fall, level)
    draws = reached / fall if final and final[2] < 0 else None  # else there is no fall to divide by
    statistic = f"share of the final fall reached by {settings.early:.0%} of the depth"
    return _finding("depth", item, statistic, _estimate(draws, level), n, lower=settings.most)


def _level(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    end = item.between(2 / 3, 1)
    lower, upper = settings.levels.get(item.model, (None, None))
    return _finding(
        "level",
        item,
        "mean ΔP of Q-Anchored over the last third",
        _estimate(_mean(item.means["q_anchored"], end), level),
        item.samples("q_anchored", end),
        lower,
        upper,
        applies=item.model in settings.levels,
    )


def _noise(item: Curves, settings: VerdictSettings, level: float) -> Finding:
    def step(curve: np.ndarray) -> np.ndarray:
        steps = np.abs(np.diff(curve, axis=1))
        enough = np.isfinite(steps[0])
        return steps[:, enough].mean(axis=1) if enough.mean() >= 0.5 else np.full(len(curve), np.nan)

    with np.errstate(invalid="ignore", divide="ignore"):
        draws = step(item.means["q_anchored"]) / step(item.means["a_anchored"])
    return _finding(
        "noise",
        item,
        "mean step between layers, Q-Anchored / A-Anchored",
        _estimate(draws, level),
        item.samples("q_anchored"),
        lower=settings.rougher,
    )


def _agree(of_model: Sequence[Curves], settings: VerdictSettings, level: float) -> Finding:
    q = [item.means["q_anchored"] for item in of_model]
    pairs = list(combinations(q, 2))
    draws = np.min([_correlation(a, b) for a, b in pairs], axis=0) if pairs and all(map(_is_clear, q)) else None
    return _finding(
        "agree",
        of_model,
        "smallest correlation of two data sets' Q-Anchored curves",
        _estimate(draws, level),
        _fewest(of_model),
        lower=settings.follow,
        applies=len(of_model) > 1,
    )


def _is_clear(curve: np.ndarray) -> bool:
    """Tell whether a curve varies much more over the layers than from draw to draw; noise lowers every correlation."""
    enough = np.isfinite(curve[0])
    noise = np.nanvar(curve[1:, enough], axis=0).mean() if enough.any() else np.inf
    return bool(noise < _CLEAR * np.var(curve[0, enough]))


def _correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation over the layers that both have, shape (1 + draws,)."""
    both = np.isfinite(one[0]) & np.isfinite(other[0])
    if both.sum() < _FEW_LAYERS:
        return np.full(len(one), np.nan)
    a, b = (curve[:, both] - curve[:, both].mean(axis=1, keepdims=True) for curve in (one, other))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))


def _lowest(of_model: Sequence[Curves], settings: VerdictSettings, level: float) -> Finding:
    applies = len(of_model) > 1 and any(item.dataset == settings.lowest for item in of_model)
    draws = None
    if applies:
        stacked = np.stack([item.means["q_anchored"] for item in of_model])  # (data sets, 1 + draws, layers)
        place = [item.dataset for item in of_model].index(settings.lowest)
        enough = np.isfinite(stacked[:, 0]).all(axis=0)
        if enough.sum() >= _FEW_LAYERS:
            chosen = stacked[:, :, enough]
            draws = np.where(
                np.isfinite(chosen).all(axis=0).all(axis=1),
                (chosen[place] <= chosen.min(axis=0)).mean(axis=1),
                np.nan,
            )
    return _finding(
        "lowest",
        of_model,
        f"share of layers at which {settings.lowest} is the lowest",
        _estimate(draws, level),
        _fewest(of_model),
        lower=settings.most,
        applies=applies,
    )


def _larger(found: Sequence[Curves], settings: VerdictSettings, level: float) -> Finding:
    by_key = {(item.model, item.dataset): item for item in found}
    smaller, larger = settings.smaller_and_larger
    shared = [item.dataset for item in found if item.model == larger and (smaller, item.dataset) in by_key]
    draws, used = None, list(found)
    if shared:
        used = [by_key[model, dataset] for dataset in shared for model in (smaller, larger)]
        levels = {(item.model, item.dataset): _mean(item.means["q_anchored"], item.between(2 / 3, 1)) for item in used}
        draws = np.mean([levels[larger, dataset] - levels[smaller, dataset] for dataset in shared], axis=0)
    return _finding(
        "larger",
        used,
        f"level of {larger} less that of {smaller}, mean over data sets",
        _estimate(draws, level),
        _fewest(used),
        upper=0,
        applies=bool(shared),
    )


def _fewest(found: Sequence[Curves]) -> int | None:
    numbers = [number for item in found if (number := item.samples("q_anchored")) is not None]
    return min(numbers, default=None)


def as_json(found: Sequence[Finding], settings: VerdictSettings) -> dict[str, Any]:
    """Return the findings with the claims' words and the thresholds."""
    return {
        "claims": CLAIMS,
        "thresholds": settings.model_dump(mode="json"),
        "findings": [asdict(item) for item in found],
    }


def report(found: Sequence[Finding], settings: VerdictSettings, names: Mapping[str, Mapping[str, str]]) -> str:
    """Return the findings as Markdown; ``names``: what ``model`` and ``dataset`` slugs are called."""
    parts = [
        "# Verdict\n",
        "What the published figure shows, tested on this run's numbers: site "
        f"`{settings.site}`, position `{settings.position}`, grouping `{settings.grouping}`, layers with at least "
        f"{settings.min_n} samples in the group. A claim holds if the whole interval lies in the range, and does not "
        "hold if none of it does. n is the median over layers.\n",
        "A flip has to cross 0.5, and with the grouping `per_layer` the Q-Anchored samples of a layer are those that "
        "flip there. So a dichotomy appears in part because of how the groups are made; that it *holds* here does not "
        "say that it is larger than chance would give. A run with `controls` says that, in `controls.md`.\n",
    ]
    counted = [item.verdict for item in found]
    parts.append(
        markdown.table(
            ["verdict", "findings"],
            [[name, counted.count(name)] for name in (HOLDS, FAILS, CANNOT_TELL, NOT_APPLICABLE)],
        )
    )
    if not any(item.claim == "falls" for item in found):
        parts.append(
            "No series has such curves: the run measures another site, position or grouping (the key `verdict` chooses "
            "them), or no probes could be trained (`samples.md` says why).\n"
        )
    for claim, words in CLAIMS.items():
        rows = [item for item in found if item.claim == claim]
        if not rows:
            continue
        parts += [
            f"## {words}\n",
            f"{rows[0].statistic[:1].upper()}{rows[0].statistic[1:]}.\n",
            markdown.table(
                ["model", "data set", "value", "from", "to", "claimed", "n", "verdict"],
                [[*_whose(item, names), *map(_number, (item.value, item.low, item.high)), _range(item),
                  markdown.NOTHING if item.n is None else item.n, item.verdict] for item in rows],
            ),
        ]  # fmt: skip
    return "\n".join(parts)


def _whose(item: Finding, names: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    def called(kind: str, slug: str | None) -> str:
        return names.get(kind, {}).get(slug, slug) if slug else "all"

    return called("model", item.model), called("dataset", item.dataset)


def _number(value: float | None) -> str:
    return markdown.NOTHING if value is None else f"{value:.2f}"


def _range(item: Finding) -> str:
    if item.lower is None and item.upper is None:
        return markdown.NOTHING
    if item.lower is None:
        return f"≤ {item.upper:g}"
    return f"≥ {item.lower:g}" if item.upper is None else f"{item.lower:g} … {item.upper:g}"
