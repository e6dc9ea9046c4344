"""The interventions job on a tiny model: what is cut, how much attention that removes, chunks, shards and refusals."""

import importlib.util
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from asking import inference_job

import tiny
from deltap import tensors
from deltap.errors import DeltapError
from deltap.inference import run_shard as run_inference
from deltap.inference import shard_answers
from deltap.interventions.job import Interventions, read_k_star, run_shard, shard_rows, steps
from deltap.interventions.mass import Attention
from deltap.models.engine import Engine
from deltap.models.knockout import Cut
from deltap.models.load import load
from deltap.settings import (
    HeadSettings,
    InferenceSettings,
    InferenceStage,
    InterventionSettings,
    InterventionsStage,
    ModelSettings,
    PromptSettings,
    WindowSettings,
)
from deltap.store import Store, StoredTensor
from deltap.tables import ANSWERS, INTERVENTIONS, PROBES, read_table, write_batches, write_table

SCRIPT = Path(__file__).parents[2] / "scripts" / "interventions.py"
ENDS = set(range(1, 400, 4))
NAMES = ("Arland", "the old Kingdom of Belania", "Corford", "Dunham", "Elgate", "Farholm", "Grimsby", "Hemley")
EVERY = InterventionSettings(
    random_tokens=2,
    random_mass=1,
    dose=(1, 2),
    windows=WindowSettings(widths=(1, 3), samples=4),
    heads=HeadSettings(layers=(0, 2), samples=2),
)
CUTS = ["random_tokens.0", "random_tokens.1", "random_mass.0", "answer_queries.0", "dose_1.0", "dose_2.0"]
RESTARTED = ["window_1.0", "window_3.0", "heads.0"]
K_STAR = 2
ENTRY = ModelSettings(kind="base", dtype="float32", device="cpu", max_new_tokens=8)


def stage(settings=EVERY, **changes):
    return InterventionsStage(
        **{
            **{"model": "m", "dataset": "d", "extractor": "auto", "entry": ENTRY, "prompt": PromptSettings()},
            **{"chunk_questions": 3, "interventions": settings, "site": "attn", "position": "exact_answer_last"},
            **{"seed": 0, **changes},
        }
    )


def asked(names=NAMES):
    return [
        {
            **{"question_id": f"q{index}", "question": f"What is the capital of {name}?", "gold_answers": ["x"]},
            **{"subject": name, "property": "capital", "split": "train" if index == 2 else "test"},
            **{"dataset": "d", "hash": f"{index:016x}", "extra": "{}"},
        }
        for index, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("model"), "llama")


@pytest.fixture(scope="module")
def inference(directory, tokenizer, tmp_path_factory):
    _, engine = load(directory, ENTRY)
    settings = InferenceStage(
        **{"model": "m", "dataset": "d", "extractor": "auto", "entry": ENTRY, "prompt": PromptSettings()},
        inference=InferenceSettings(sites=("attn",), positions=("exact_answer_last",), chunk_questions=3),
        bad_rows=0,
    )
    return inference_job(engine, tokenizer, settings, ENDS, tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def answered(inference, tmp_path_factory):
    """What the inference job said of each question, and its chunks."""
    chunks = run_inference(inference, pa.Table.from_pylist(asked()), Store(tmp_path_factory.mktemp("s")), {}, ignore)
    table = pa.concat_tables(shard_answers(chunks))
    assert table["exclusion"].null_count == len(NAMES)
    return table, chunks


def ignore(done):
    return None


def of_the_test_split(rows):
    return [row["question_id"] for row in rows if row["split"] == "test" and not row["exclusion"]]


def run(inference, rows, store, settings=None, k_star=K_STAR, everyone=None, progress=ignore):
    job = Interventions(inference.model, settings or stage(), k_star)
    return run_shard(job, rows, everyone or of_the_test_split(rows), Store(store), {"model": 1}, progress)


def read(chunks, name):
    kind = "restarted" if name.startswith(("window", "heads")) else "cuts"
    return torch.cat([StoredTensor(path, name)[:] for path in chunks[kind]], dim=1)


def rows_of(chunks):
    return list(shard_rows([*chunks["cuts"], *chunks["restarted"]], 0))


def test_what_is_read_is_what_plain_passes_with_the_recorded_tokens_read(inference, answered, tmp_path):
    table, _ = answered
    answers = {row["question_id"]: row for row in table.to_pylist()}
    chunks = run(inference, table.to_pylist(), tmp_path)
    engine = Engine(inference.model.engine.model, 1)
    found = rows_of(chunks)
    assert {f"{row['intervention']}.{row['draw']}" for row in found} == {*CUTS, *RESTARTED} == {*EVERY.files}
    for row in found:
        answer = answers[row["question_id"]]
        ids = inference.model.prompter(answer["question"]).ids + answer["answer_ids"]
        name, at, exact = row["intervention"], answer["exact_answer_tokens"][-1], answer["exact_question_tokens"]
        states = read(chunks, f"{name}.{row['draw']}")[:, row["row"]]
        assert row["exact_question_tokens"] == len(exact)

        def plain(ids=ids, at=at, keys=exact, **cut):
            (states,) = engine.passes([ids], [[at]], ("attn",), [Cut([keys], **cut)])
            return states["attn"][:, 0, 0]

        if name.startswith("window"):
            width = int(name.removeprefix("window_"))
            expected = [plain(first_layer=s, last_layer=s + width - 1)[K_STAR] for s in range(4 - width + 1)]
            close(states, torch.stack(expected))
        elif name == "heads":
            one = [plain(first_layer=layer, last_layer=layer, head=head) for layer in (0, 2) for head in range(4)]
            close(states, torch.stack(one)[:, K_STAR])
        elif name == "answer_queries":
            close(states, plain(first_query=[answer["prompt_tokens"]]))
        else:
            close(states, plain(keys=row["tokens"]))


def test_a_dose_of_all_tokens_is_the_methods_own_cut(inference, answered, tmp_path):
    table, clean_chunks = answered
    chunks = run(inference, table.to_pylist(), tmp_path, stage(InterventionSettings(dose=(99,), windows=None)))
    knockout = torch.cat([StoredTensor(path, "knockout/attn/exact_answer_last")[:] for path in clean_chunks], dim=1)
    close(read(chunks, "dose_99.0"), knockout)


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_only_usable_test_samples_are_cut_and_the_first_of_them_in_windows_and_heads(inference, answered, tmp_path):
    rows = answered[0].to_pylist()
    rows[3] = {**rows[3], "exclusion": "truncated_answer"}
    said: list[int] = []
    chunks = run(inference, rows, tmp_path, progress=said.append)
    by_name: dict[str, list[str]] = {}
    for row in rows_of(chunks):
        by_name.setdefault(f"{row['intervention']}.{row['draw']}", []).append(row["question_id"])
    usable = ["q0", "q1", "q4", "q5", "q6", "q7"]
    assert by_name == {
        **dict.fromkeys(CUTS, usable),
        **{"window_1.0": usable[:4], "window_3.0": usable[:4], "heads.0": usable[:2]},
    }
    for name, ids in by_name.items():
        assert read(chunks, name).shape[1] == len(ids)
        assert [row["row"] for row in rows_of(chunks) if f"{row['intervention']}.{row['draw']}" == name] == list(
            range(len(ids))
        )
    job = Interventions(inference.model, stage(), K_STAR)
    assert sum(said) == steps(job, rows, of_the_test_split(rows)) == 6 * 7 + 2 * 4 + 2


def test_the_recorded_mass_is_that_of_the_models_own_attention(inference, answered, tmp_path):
    answers = {row["question_id"]: row for row in answered[0].to_pylist()}
    model = tiny.model("llama")
    model.set_attn_implementation("eager")
    checked = 0
    for row in rows_of(run(inference, answered[0].to_pylist(), tmp_path)):
        answer = answers[row["question_id"]]
        if row["mass"] is None:
            assert row["intervention"].startswith(("window", "heads"))
            continue
        prompt = inference.model.prompter(answer["question"])
        ids = prompt.ids + answer["answer_ids"]
        with torch.inference_mode():
            weights = torch.stack(model(torch.tensor([ids]), output_attentions=True).attentions).mean(dim=(0, 1, 2))
        question = next(i for i, (start, end) in enumerate(prompt.offsets) if end > prompt.question_start)
        for keys, mass, first in (
            (row["tokens"], row["mass"], len(prompt.ids) if row["intervention"] == "answer_queries" else 0),
            (answer["exact_question_tokens"], row["exact_mass"], 0),
        ):
            losing = [i for i in range(max(question, first), len(ids)) if i not in keys]
            removed = sum(float(weights[i, j]) for i in losing for j in keys if j < i)
            expected = removed / (len(ids) - question)
            assert mass == pytest.approx(expected, abs=1e-5)
            checked += 1
    assert checked == 2 * 6 * 7


def test_mass_by_hand():
    # The queries are tokens 2, 3 and 4, whatever is cut; keys lose nothing themselves.
    weights = np.array([[0.5, 0.3, 0.2, 0, 0], [0.1, 0.2, 0.3, 0.4, 0], [0.2, 0.2, 0.1, 0.3, 0.2]])
    attention = Attention(weights, 2)
    assert attention.removed([3]) == pytest.approx(0.3 / 3)
    assert attention.removed([1]) == pytest.approx((0.3 + 0.2 + 0.2) / 3)
    assert attention.removed([1], first_query=4) == pytest.approx(0.2 / 3)
    assert attention.removed([1, 3]) == pytest.approx((0.3 + (0.2 + 0.3)) / 3)
    assert attention.removed([4]) == attention.removed([]) == 0


def test_random_tokens_are_outside_of_the_exact_ones_and_of_the_answer(inference, answered, tmp_path):
    answers = {row["question_id"]: row for row in answered[0].to_pylist()}
    rows = rows_of(run(inference, answered[0].to_pylist(), tmp_path))
    drawn = {}
    for row in rows:
        answer = answers[row["question_id"]]
        if row["intervention"].startswith("random"):
            assert not {*row["tokens"]} & {0, *answer["exact_question_tokens"]}
            assert max(row["tokens"]) < answer["prompt_tokens"]
            drawn.setdefault((row["intervention"], row["draw"]), []).append(row["tokens"])
        elif row["intervention"].startswith("dose"):
            assert len(row["tokens"]) == min(int(row["intervention"][-1]), row["exact_question_tokens"])
    assert drawn["random_tokens", 0] != drawn["random_tokens", 1]


@pytest.mark.parametrize(("size", "budget"), [(1, 1), (2, 10_000), (8, 60)])
def test_neither_chunks_nor_batches_move_a_number(inference, answered, tmp_path, monkeypatch, size, budget):
    rows = answered[0].to_pylist()
    expected = run(inference, rows, tmp_path / "a")
    monkeypatch.setattr(inference.model.engine, "batch_tokens", budget)
    found = run(inference, rows, tmp_path / "b", stage(chunk_questions=size))
    for one, other in zip(sorted(rows_of(found), key=by_key), sorted(rows_of(expected), key=by_key), strict=True):
        assert {key: value for key, value in one.items() if "mass" not in key} == {
            key: value for key, value in other.items() if "mass" not in key
        }
        if one["mass"] is not None:
            assert one["mass"] == pytest.approx(other["mass"], abs=1e-5)
    for name in (*CUTS, *RESTARTED):
        close(read(found, name), read(expected, name))


def by_key(row):
    return row["intervention"], row["draw"], row["question_id"]


def test_a_killed_job_finds_its_chunks_and_k_star_moves_only_what_depends_on_it(inference, answered, tmp_path):
    rows = answered[0].to_pylist()
    first = run(inference, rows[:3], tmp_path, everyone=of_the_test_split(rows))
    there = {path: path.stat().st_mtime_ns for paths in first.values() for path in paths}
    whole = run(inference, rows, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in there} == there
    assert whole["cuts"][:1] == first["cuts"]
    assert whole["restarted"][:1] == first["restarted"]
    other = run(inference, rows, tmp_path, k_star=1)
    assert other["cuts"] == whole["cuts"]
    assert not {*other["restarted"]} & {*whole["restarted"]}


def test_without_probes_windows_and_heads_have_no_samples(inference, answered, tmp_path):
    chunks = run(inference, answered[0].to_pylist(), tmp_path, k_star=None)
    assert [tuple(read(chunks, name).shape) for name in RESTARTED] == [(4, 0, 32), (2, 0, 32), (8, 0, 32)]
    assert {row["intervention"] for row in rows_of(chunks)} == {name[:-2] for name in CUTS}


def test_a_window_read_at_its_end_is_the_plain_knockout_of_its_layers(inference, answered, tmp_path):
    rows = answered[0].to_pylist()
    at_end = InterventionSettings(windows=WindowSettings(widths=(1, 4), read_at="end"))
    chunks = run(inference, rows, tmp_path, stage(at_end))
    knockout = torch.cat([StoredTensor(path, "knockout/attn/exact_answer_last")[:] for path in answered[1]], dim=1)
    close(read(chunks, "window_4.0")[0], knockout[3])


def test_a_prompt_that_has_changed_is_refused_by_name(inference, answered, tmp_path):
    rows = answered[0].to_pylist()
    rows[1] = {**rows[1], "prompt_tokens": rows[1]["prompt_tokens"] + 1}
    with pytest.raises(DeltapError, match=r"m, d, question 'q1': its prompt has \d+ tokens and had \d+"):
        run(inference, rows, tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"windows": {"widths": [1, 5]}}, r"controls\.interventions\.windows\.widths: 5, but m has 4 layers"),
        ({"heads": {"layers": [3, 4, 7]}}, r"controls\.interventions\.heads\.layers: 4, 7, but m has 4 layers"),
    ],
)
def test_what_is_not_in_the_model_is_refused(inference, settings, message):
    with pytest.raises(DeltapError, match=message):
        Interventions(inference.model, stage(InterventionSettings.model_validate(settings)), K_STAR)


@pytest.fixture
def scores(tmp_path):
    def write(aurocs):
        rows = [
            {
                **{"model": "m", "dataset": "d", "extractor": "auto", "site": site, "position": "exact_answer_last"},
                **{"layer": layer, "split": split, "auroc": auroc if split == "validation" else 0.9},
                **{"n_truthful": 1, "n_hallucinated": 1},
            }
            for site in ("attn", "mlp")
            for split in ("train", "validation")
            for layer, auroc in enumerate(aurocs if site == "attn" else [0.9] * len(aurocs))
        ]
        write_table(tmp_path / "scores.parquet", rows, PROBES, {})
        return tmp_path / "scores.parquet"

    return write


def test_the_reference_layer_is_that_of_the_best_validation_auroc(scores):
    assert read_k_star(scores([0.5, 0.7, 0.8, 0.8]), "attn", "exact_answer_last") == 2
    assert read_k_star(scores([None] * 4), "attn", "exact_answer_last") is None


def test_the_script_writes_the_files_of_each_shard(answered, directory, scores, tmp_path):
    spec = importlib.util.spec_from_file_location("interventions_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    answers = [tmp_path / f"{shard}.parquet" for shard in range(2)]
    for path, first in zip(answers, (0, 3), strict=True):
        write_batches(path, [answered[0].slice(first, 3 if first == 0 else None)], ANSWERS, {})
    paths = []
    for shard in range(2):
        out = tmp_path / "out" / str(shard)
        script.main(
            Namespace(
                **{"settings": stage().model_dump_json(), "answers": answers, "shard": shard, "model": directory},
                **{"scores": scores([0.5, 0.6, 0.8, 0.7]), "store": tmp_path / "store", "out": out},
            )
        )
        assert {path.name for path in out.iterdir()} == {
            "interventions.parquet",
            *(f"{name}.attn.exact_answer_last.safetensors" for name in EVERY.files),
        }
        paths += out.glob("*.safetensors")
    tables = [read_table(tmp_path / "out" / str(shard) / "interventions.parquet", INTERVENTIONS) for shard in range(2)]
    assert [set(table["shard"].to_pylist()) for table in tables] == [{0}, {1}]
    for name in EVERY.files:
        files = tensors.activation_files(sorted(paths), name, "attn", "exact_answer_last")
        rows = [row for table in tables for row in table.to_pylist() if f"{row['intervention']}.{row['draw']}" == name]
        assert files.rows == len(rows)
    # The first four test samples of all shards, of which two are in the first shard.
    windows = [row["question_id"] for table in tables for row in table.to_pylist() if row["intervention"] == "window_1"]
    assert windows == ["q0", "q1", "q3", "q4"]
