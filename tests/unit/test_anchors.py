"""Anchors from probabilities: flips, and which of them rounding may decide."""

import numpy as np
import pytest
import torch

from deltap.anchors import anchors
from deltap.probe import Probe
from deltap.tensors import ActivationFiles, write_activations


@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float32, [False, False, True]), (torch.bfloat16, [True, False, True])]
)
def test_a_probability_near_one_half_is_marked_by_what_the_dtype_rounds(tmp_path, monkeypatch, dtype, near):
    clean, knockout = np.array([0.53, 0.9, 0.5004]), np.array([0.9, 0.2, 0.9])
    files = {}
    for name, values in (("clean", clean), ("knockout", knockout)):
        write_activations(tmp_path / name, [torch.tensor(values, dtype=dtype)[None, :, None]], {})
        files[name] = ActivationFiles([tmp_path / name])
    monkeypatch.setattr(Probe, "probability", lambda self, x: clean if x[1, 0] > 0.5 else knockout)
    rows = {"question_id": np.array(["a", "b", "c"]), "label": np.array(["truthful"] * 3)}
    rows |= {name: np.arange(3) for name in ("clean_row", "knockout_row")}
    table = anchors([Probe.__new__(Probe)], files["clean"], files["knockout"], rows, 0, {})
    assert table["near_threshold"].to_pylist() == near
    assert table["flips"].to_pylist() == [False, True, False]
