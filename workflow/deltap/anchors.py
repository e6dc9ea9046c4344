"""Anchors: whether a test sample's verdict flips when attention from the exact question tokens is cut."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:  # so that ΔP and figures need no SciPy
    from deltap.probe import Probe
    from deltap.tensors import ActivationFiles

CLASSES = np.array(["hallucinated", "truthful"])
NAMES = np.array(["a_anchored", "q_anchored"])
# How far rounding moves a probability, by the dtype of the activations (as safetensors names it): what other batches
# changed at most where it was measured, rounded up (docs/engines.md); float16 lies between.
ROUNDING = {"F32": 1e-3, "F16": 1e-2, "BF16": 7e-2}


def predicted(probability: np.ndarray) -> np.ndarray:
    """Return the class that a probability of ``truthful`` predicts; 0.5 counts as truthful."""
    return CLASSES[(probability >= 0.5).astype(int)]


def anchor(flips: np.ndarray) -> np.ndarray:
    """Return ``q_anchored`` where the predicted class flips under knockout, else ``a_anchored``."""
    return NAMES[flips.astype(int)]


def anchors(
    probes: "list[Probe]",
    clean: "ActivationFiles",
    knockout: "ActivationFiles",
    samples: dict[str, np.ndarray],
    k_star: int,
    constants: dict[str, str],
) -> pa.Table:
    """Return the ANCHORS rows of one site and position: layer by layer, the test samples in their given order.

    ``probes`` has one probe for each layer. ``samples`` holds for each test sample ``question_id``, ``label``, and
    its rows in the two passes, ``clean_row`` and ``knockout_row``. ``constants`` are the other columns.

    A sample is Q-Anchored at layer k if the class that the probe of layer k predicts differs between the passes. Where
    a probability is so near to 0.5 that rounding could decide, ``near_threshold`` says so.
    """
    p_clean = np.stack([p.probability(clean.layer(k)[samples["clean_row"]]) for k, p in enumerate(probes)])
    p_knockout = np.stack([p.probability(knockout.layer(k)[samples["knockout_row"]]) for k, p in enumerate(probes)])
    # The table stores single precision; classes are taken from what it stores, so that it never contradicts itself.
    p_clean, p_knockout = p_clean.astype(np.float32), p_knockout.astype(np.float32)
    flips = predicted(p_clean) != predicted(p_knockout)
    distance = np.minimum(abs(p_clean - 0.5), abs(p_knockout - 0.5))
    layers, count = p_clean.shape
    columns: dict[str, Any] = {
        **{name: np.repeat(value, layers * count) for name, value in constants.items()},
        "layer": np.repeat(np.arange(layers), count),
        "question_id": np.tile(samples["question_id"], layers),
        "label": np.tile(samples["label"], layers),
        "p_clean": p_clean.ravel(),
        "p_knockout": p_knockout.ravel(),
        "predicted": predicted(p_clean).ravel(),
        "predicted_knockout": predicted(p_knockout).ravel(),
        "flips": flips.ravel(),
        "near_threshold": (distance < ROUNDING[clean.dtype]).ravel(),
        "k_star": np.repeat(k_star, layers * count),
        "anchor_reference": np.tile(anchor(flips[k_star]), layers),
    }
    return pa.table(columns)
