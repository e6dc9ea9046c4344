"""Two groups or one? The distribution of ΔP at the reference layer, without asking who flips."""

import numpy as np
from sklearn.metrics import cohen_kappa_score
from sklearn.mixture import GaussianMixture

from deltap.controls.estimates import Estimated, Estimates
from deltap.controls.rows import Rows
from deltap.statistics import null_share

_FEW = 10  # values, below which a distribution has no shape


def bimodality(estimates: Estimates, permuted: Estimated | None, seed: int, rows: Rows) -> None:
    """Add `dip` and `gain_of_two` of ΔP of the test samples at k*, and the same of permuted labels.

    ``p`` is (1 + the draws of permuted labels whose statistic is at least as large) / (1 + draws): how often probes
    that learnt nothing give a distribution as much of two groups. `dip_p` is another. Then how far assigning samples by
    `threshold` or by `component` agrees with the flips: ``agreement`` in percent, ``kappa`` beyond chance.
    """
    k_star = estimates.measured.k_star
    values = estimates.method().delta_p()[0, k_star]
    if len(values) < _FEW:
        return
    null = []
    if permuted:
        for draw, each in enumerate(permuted.draws):
            null.append(each.delta_p[estimates.found.permuted.k_star(draw)])
    for name, statistic in (("dip", dip), ("gain_of_two", lambda x: gain_of_two(x, seed))):
        found, others = statistic(values), np.array([statistic(each) for each in null])
        p = null_share(found, others) if null else None
        rows.add("two groups", name, found, layer=k_star, n=len(values), p=p)
        if null:
            rows.add("two groups", name, float(others.mean()), group="permuted labels", n=len(values))
    rows.add("two groups", "dip_p", dip_p(values), layer=k_star, n=len(values))
    flipped = estimates.plain["reference"][0]
    for name, assigned in (("threshold", values < threshold(values)), ("component", component(values, seed))):
        share = 100 * float((assigned == flipped).mean())
        rows.add("two groups", "agreement", share, group=name, layer=k_star, n=len(values))
        rows.add("two groups", "kappa", kappa(assigned, flipped), group=name, layer=k_star, n=len(values))


def dip(values: np.ndarray) -> float:
    """Return the dip: the largest distance between the distribution of values and the nearest one with one mode.

    Between 1 / (2n) and 1/4. Source: Hartigan & Hartigan 1985, "The Dip Test of Unimodality".
    """
    from diptest import dipstat  # what few runs use need not be loaded by all

    return float(dipstat(np.asarray(values, dtype=float)))


def dip_p(values: np.ndarray) -> float:
    """Return how often as many uniform values, which have one mode only just, have as large a dip, 0 … 1.

    Source: as of `dip`, whose tables diptest holds.
    """
    from diptest import diptest

    return float(diptest(np.asarray(values, dtype=float))[1])


def gain_of_two(values: np.ndarray, seed: int) -> float:
    """Return BIC of one Gaussian less BIC of two: positive where two describe the values better; 0 if all are equal.

    A single skewed group counts as two as well. Source: Schwarz 1978; a difference above 10 counts as strong (Raftery
    1995).
    """
    if np.ptp(values) == 0:
        return 0.0
    x = _column(values)
    return float(_mixture(x, 1, seed).bic(x) - _mixture(x, 2, seed).bic(x))


def threshold(values: np.ndarray) -> float:
    """Return the threshold that divides values into two groups of the least variance within.

    It is Otsu's, found exactly over all divisions, so that it needs neither bins nor a model of the groups; half-way
    between its neighbours. Source: Otsu 1979.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    number = np.arange(1, len(ordered))
    below = np.cumsum(ordered)[:-1]
    means = below / number, (ordered.sum() - below) / (len(ordered) - number)
    between = number * (len(ordered) - number) * (means[0] - means[1]) ** 2
    split = int(np.argmax(between))
    return float((ordered[split] + ordered[split + 1]) / 2)


def component(values: np.ndarray, seed: int) -> np.ndarray:
    """Tell which values belong to the lower one of two Gaussians, by the larger posterior; boolean."""
    if np.ptp(values) == 0:
        return np.zeros(len(values), dtype=bool)
    x = _column(values)
    mixture = _mixture(x, 2, seed)
    return mixture.predict(x) == int(np.argmin(mixture.means_[:, 0]))


def kappa(one: np.ndarray, other: np.ndarray) -> float | None:
    """Return Cohen's kappa of two assignments; None where each knows one group only, and the same.

    Source: Cohen 1960: agreement beyond that of chance, as a share of what chance leaves.
    """
    if len(np.unique(np.concatenate([one, other]))) < 2:
        return None
    return float(cohen_kappa_score(one, other))


def _column(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=float)[:, None]


def _mixture(x: np.ndarray, components: int, seed: int) -> GaussianMixture:
    # A thousandth of the variance keeps a component from closing in on one value.
    return GaussianMixture(components, reg_covar=1e-3 * float(x.var()), n_init=3, random_state=seed).fit(x)
