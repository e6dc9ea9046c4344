"""The verdict on synthetic tables in which each claim is true, false or undecidable."""

import importlib.util
import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deltap.settings import BootstrapSettings, VerdictSettings
from deltap.tables import DELTA_P, write_table
from deltap.verdict import CLAIMS, Curves, Finding, curves, findings, report

SETTINGS = VerdictSettings()
BOOTSTRAP = BootstrapSettings(draws=200)
LAYERS = 30
DEPTH = np.arange(LAYERS) / (LAYERS - 1)
PUBLISHED = -70 * np.minimum(1, DEPTH / 0.5)  # falls to its level by half of the depth
JUMPS = np.where(np.arange(LAYERS) % 2, 6.0, -6.0) * (np.arange(LAYERS) > 0)


def table(
    q: np.ndarray,
    a: np.ndarray | float = 0.0,
    model: str = "qwen3-8b",
    dataset: str = "popqa",
    n: int = 60,
    spread: float = 2.0,
    seed: int = 0,
) -> pa.Table:
    """Return DELTA_P rows of ``n`` samples in each group, whose mean curves are ``q`` and ``a``."""
    random = np.random.default_rng(seed)
    rows = []
    for anchor, mean in (("q_anchored", q), ("a_anchored", np.broadcast_to(a, LAYERS))):
        noise = random.normal(0, spread, (n, LAYERS))
        noise -= noise.mean(axis=0)
        for sample in range(n):
            for layer in range(LAYERS):
                value = float(mean[layer] + noise[sample, layer])
                rows.append(
                    {
                        "model": model, "dataset": dataset, "extractor": "auto",
                        "intervention": "exact_question", "estimate": "plain", "draw": 0, "grouping": "per_layer",
                        "anchor": anchor, "site": "attn", "position": "exact_answer_last", "layer": layer,
                        "question_id": f"{anchor}{sample}", "delta_p": value,
                    }
                )  # fmt: skip
    return pa.Table.from_pylist(rows, DELTA_P)


def judged(*tables: pa.Table, settings: VerdictSettings = SETTINGS) -> list[Finding]:
    found = [curves(part, settings, BOOTSTRAP) for part in tables]
    return findings([item for item in found if item], settings, BOOTSTRAP.level)


def verdict(claim: str, *tables: pa.Table) -> str:
    (finding,) = [item for item in judged(*tables) if item.claim == claim]
    return finding.verdict


FALSE = {
    "falls": table(-0.1 * PUBLISHED),
    "stays": table(PUBLISHED, a=-12 * DEPTH),
    "start": table(PUBLISHED - 20),
    "depth": table(-70.0 * (DEPTH > 0.65)),
    "level": table(0.5 * PUBLISHED),
    "noise": table(PUBLISHED, a=JUMPS),
}
UNDECIDABLE = {
    "falls": table(PUBLISHED / 70 * 20, n=12, spread=40),
    "stays": table(PUBLISHED, a=4.0, n=12, spread=8),
    "start": table(PUBLISHED, n=12, spread=20),
    "depth": table(PUBLISHED / 35, n=12, spread=60),
    "level": table(PUBLISHED + 9 * DEPTH, n=12, spread=60),
    "noise": table(PUBLISHED, n=12, spread=30),
}


@pytest.mark.parametrize("claim", ["falls", "stays", "start", "depth", "level", "noise"])
def test_a_claim_about_one_data_set_is_true_false_or_undecidable(claim: str) -> None:
    assert verdict(claim, table(PUBLISHED + JUMPS, n=200)) == "holds"
    assert verdict(claim, FALSE[claim]) == "does not hold"
    assert verdict(claim, UNDECIDABLE[claim]) == "cannot tell"
    assert verdict(claim, table(PUBLISHED, n=SETTINGS.min_n - 1)) == "cannot tell"


def test_data_sets_that_follow_each_other() -> None:
    one = table(PUBLISHED)
    assert verdict("agree", one, table(0.9 * PUBLISHED, dataset="nq", seed=1)) == "holds"
    assert verdict("agree", one, table(-PUBLISHED - 70, dataset="nq", seed=1)) == "does not hold"
    assert verdict("agree", one, table(PUBLISHED / 20, dataset="nq", n=12, spread=60)) == "cannot tell"
    assert verdict("agree", one) == "not applicable"


def test_popqa_is_the_lowest() -> None:
    nq = table(PUBLISHED, dataset="nq")
    assert verdict("lowest", table(PUBLISHED - 10, seed=1), nq) == "holds"
    assert verdict("lowest", table(PUBLISHED + 10, seed=1), nq) == "does not hold"
    assert verdict("lowest", table(PUBLISHED, n=30, spread=30, seed=1), nq) == "cannot tell"
    assert verdict("lowest", nq, table(PUBLISHED, dataset="triviaqa")) == "not applicable"


def test_the_larger_model_lies_lower() -> None:
    def large(shift: float, **more: float) -> pa.Table:
        return table(PUBLISHED + shift * DEPTH, model="qwen3-32b", seed=1, **more)  # type: ignore[arg-type]

    assert verdict("larger", table(PUBLISHED), large(-20)) == "holds"
    assert verdict("larger", table(PUBLISHED), large(20)) == "does not hold"
    assert verdict("larger", table(PUBLISHED, n=12, spread=60), large(0, n=12, spread=60)) == "cannot tell"
    assert verdict("larger", table(PUBLISHED)) == "not applicable"
    # Levels of the published models say nothing about another one.
    assert verdict("level", table(PUBLISHED, model="smollm2")) == "not applicable"


def test_statistics_against_plain_numbers() -> None:
    (found,) = [item for item in judged(table(PUBLISHED)) if item.claim == "falls"]
    assert found.value == pytest.approx(PUBLISHED[15:].mean(), abs=1e-4)  # layers 14.5 … 29
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert found.n == 60
    (depth,) = [item for item in judged(table(PUBLISHED)) if item.claim == "depth"]
    # Layers 14.5 … 17.4 against 19.3 … 29.
    assert depth.value == pytest.approx(PUBLISHED[15:18].mean() / PUBLISHED[20:].mean(), abs=1e-4)


def test_layers_by_depth() -> None:
    item = Curves("m", "d", {}, {"q_anchored": np.zeros(36)})
    assert item.between(0, 1) == slice(0, 36)
    assert item.between(0.5, 1) == slice(18, 36)
    assert item.between(0.5, 0.6) == slice(18, 22)


def test_the_script_writes_json_and_a_text_to_read(tmp_path: Path) -> None:
    path = Path(__file__).parents[2] / "scripts" / "verdict.py"
    spec = importlib.util.spec_from_file_location("verdict_script", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    labels = {"model": [["qwen3-8b", "Qwen3-8B"]], "dataset": [["popqa", "PopQA"], ["nq", "NQ"]]}
    parts = pa.concat_tables([table(PUBLISHED), table(PUBLISHED, dataset="nq")])
    write_table(tmp_path / "delta_p.parquet", parts, DELTA_P, {"labels": labels})
    stage = {"extractor": "auto", "verdict": {}, "bootstrap": {"draws": 50}}
    script.main(
        Namespace(
            table=tmp_path / "delta_p.parquet",
            settings=json.dumps(stage),
            out=tmp_path / "verdict.md",
            json=tmp_path / "verdict.json",
        )
    )
    found = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert {item["claim"] for item in found["findings"]} == set(CLAIMS) == set(found["claims"])
    text = (tmp_path / "verdict.md").read_text(encoding="utf-8")
    assert all(words in text for words in CLAIMS.values())
    assert "| Qwen3-8B" in text
    assert "-80 … -60" in text


def test_a_table_without_the_judged_site_says_nothing() -> None:
    settings = VerdictSettings(site="mlp")
    assert curves(table(PUBLISHED), settings, BOOTSTRAP) is None
    assert [item.verdict for item in findings([], settings, 0.95)] == ["not applicable"]
    assert report(findings([], settings, 0.95), settings, {}).startswith("# Verdict")
