"""The inference job on a tiny model: exclusions, bad numbers, chunks and shards."""

import pyarrow as pa
import pytest
import torch

import tiny
from deltap.errors import DeltapError
from deltap.generation import Generated, Generation
from deltap.inference import Inference, run_shard, shard_answers, write_shard
from deltap.models.engine import Engine
from deltap.models.language_model import LanguageModel
from deltap.models.prompts import Prompter
from deltap.settings import InferenceSettings, InferenceStage, ModelSettings, PromptSettings
from deltap.store import Store, read_tensor
from deltap.tables import QUESTIONS
from deltap.tensors import ActivationFiles

ENDS = set(range(1, 400, 4))
QUESTIONS_ASKED = [f"What is the capital of {name}?" for name in ("Arland", "Belania", "Corford", "Dunham", "Elgate")]


def questions(texts=QUESTIONS_ASKED, split="test", subject=True):
    rows = [
        {
            "question_id": f"q{index}",
            "dataset": "d",
            "question": text,
            "gold_answers": ["x"],
            "subject": text.removesuffix("?").split()[-1] if subject else None,
            "property": "capital",
            "split": split if isinstance(split, str) else split[index],
            "hash": f"{index:016x}",
            "extra": "{}",
        }
        for index, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, QUESTIONS)


@pytest.fixture
def inference(tokenizer, tmp_path):
    def make(
        model=None, prompt=None, ends=None, given_answers=None, generated=None, named=None, extractor="auto", **settings
    ):
        prompt = prompt or PromptSettings()
        stage = InferenceStage(
            model="m",
            dataset="d",
            extractor=extractor,
            entry=ModelSettings(kind="base", dtype="float32", max_new_tokens=8),
            prompt=prompt,
            inference=InferenceSettings(sites=("attn", "resid"), positions=("last", "exact_answer_last"), **settings),
            bad_rows=0.01,
        )
        engine = Engine(model or tiny.model("llama"), 4096)
        asked = LanguageModel(engine, tokenizer, Prompter(tokenizer, "base", prompt), ends or ENDS, stage.entry)
        generation = Generation(asked, "m", "d", Store(tmp_path / "answers"), {"model": 1}, given_answers, generated)
        return Inference(generation, stage, named)

    return make


def ignore(done):
    return None


def test_positions_read_are_those_of_the_answers_tokens(inference, tokenizer):
    job = inference()
    tensors, rows = job.chunk(job.prepare(questions().to_pylist()), ignore)
    assert all(row["exclusion"] is None for row in rows)
    for row in rows:
        prompt = job.model.prompter(row["question"]).ids
        last = row["prompt_tokens"] + len(row["answer_ids"]) - 1
        exact = row["exact_answer_tokens"][-1]
        assert row["prompt_tokens"] == len(prompt)
        direct = job.model.engine.forward([prompt + row["answer_ids"]], [[last, exact]], ("attn",))
        index = row["clean_row"]
        torch.testing.assert_close(tensors["clean/attn/last"][:, index], direct["attn"][:, 0, 0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            tensors["clean/attn/exact_answer_last"][:, index], direct["attn"][:, 0, 1], atol=1e-5, rtol=1e-5
        )
        spelled = tokenizer.decode([(prompt + row["answer_ids"])[token] for token in row["exact_answer_tokens"]])
        assert row["exact_answer"]["text"] in spelled


def test_the_cut_is_the_exact_question_in_its_own_place(inference, tokenizer):
    job = inference()
    _, rows = job.chunk(job.prepare(questions(["What is the capital of Japan?"]).to_pylist()), ignore)
    row = rows[0]  # the same words stand in an example of the prompt
    ids = job.model.prompter(row["question"]).ids
    cut = [tokenizer.decode([ids[token]]) for token in row["exact_question_tokens"]]
    assert cut == row["exact_question_token_text"]
    assert "".join(row["exact_question_token_text"]).replace(" ", "") == "capitalJapan"
    assert min(row["exact_question_tokens"]) >= len(job.model.prompter.prefix_ids)


def test_only_test_samples_are_knocked_out(inference):
    job = inference()
    splits = ["test", "train", "test", "validation", "train"]
    tensors, rows = job.chunk(job.prepare(questions(split=splits).to_pylist()), ignore)
    assert [row["knockout_row"] for row in rows] == [0, None, 1, None, None]
    assert [row["clean_row"] for row in rows] == [0, 1, 2, 3, 4]
    assert tensors["knockout/attn/last"].shape == (4, 2, 32)
    assert tensors["clean/attn/last"].shape == (4, 5, 32)


def test_a_sample_without_exact_question_is_excluded_with_the_reason(inference):
    job = inference()
    tensors, rows = job.chunk(job.prepare(questions(["?!", *QUESTIONS_ASKED[:1]], subject=False).to_pylist()), ignore)
    assert [row["exclusion"] for row in rows] == ["no_exact_question", None]
    assert rows[0]["clean_row"] is None
    assert tensors["clean/attn/last"].shape[1] == 1


def test_an_answer_that_ends_at_once_is_excluded_as_empty(inference, tokenizer):
    job = inference(ends=set(range(400)))
    tensors, rows = job.chunk(job.prepare(questions().to_pylist()), ignore)
    assert {row["exclusion"] for row in rows} == {"empty_answer"}
    assert tensors["clean/attn/last"].shape == (4, 0, 32)


def test_an_answer_cut_off_in_its_core_is_excluded_as_truncated(inference):
    job = inference(ends={399})
    _, rows = job.chunk(job.prepare(questions().to_pylist()), ignore)
    for row in rows:
        at_the_end = row["exact_answer"] and row["exact_answer"]["end"] == len(row["answer"])
        assert (row["exclusion"] == "truncated_answer") == bool(at_the_end)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_numbers_name_question_and_layer(inference, value):
    model = tiny.model("llama")
    inner = model.model.layers[2].mlp.forward
    model.model.layers[2].mlp.forward = lambda x: inner(x) + value
    job = inference(model)
    with pytest.raises(DeltapError, match=r"m, d, answering, site resid: NaN or infinity at question 'q\d', layer 2"):
        job.chunk(job.prepare(questions().to_pylist()), ignore)


def test_bad_numbers_in_a_pass_name_question_and_layer(inference, monkeypatch):
    job = inference()
    samples = job.prepare(questions().to_pylist())
    answers = job.model.engine.generate([sample.prompt.ids for sample in samples], ENDS, 8)
    monkeypatch.setattr(job.model.engine, "generate", lambda *arguments: answers)
    inner = job.model.engine.model.model.layers[3].mlp.forward
    job.model.engine.model.model.layers[3].mlp.forward = lambda x: inner(x) * float("nan")
    with pytest.raises(DeltapError, match=r"m, d, clean pass, site resid: NaN or infinity at question 'q0', layer 3"):
        job.chunk(samples, ignore)


def test_a_prompt_longer_than_the_context_is_refused_before_any_work(inference):
    job = inference()
    with pytest.raises(DeltapError, match=r"1 prompts are longer than the model's context, first question 'q1'"):
        job.prepare(questions(["What is A?", "What is " + "very " * 300 + "long?"]).to_pylist())


def test_an_exact_question_at_position_0_is_refused_and_all_of_them_stop_the_job(inference, tmp_path, monkeypatch):
    job = inference()
    samples = job.prepare(questions().to_pylist())
    moved = [type(sample)(sample.question, sample.prompt, sample.found, [0, 1]) for sample in samples]
    _, rows = job.chunk(moved[:1] + samples[1:], ignore)
    assert [row["exclusion"] for row in rows] == ["exact_question_at_position_0", None, None, None, None]
    monkeypatch.setattr(job, "prepare", lambda rows: moved)
    with pytest.raises(DeltapError, match="must not be cut"):
        run_shard(job, questions(), Store(tmp_path), {}, ignore)


def test_chunks_are_found_again_and_a_larger_sample_begins_with_the_smaller(inference, tmp_path):
    job, store = inference(chunk_questions=2), Store(tmp_path)
    few = run_shard(job, questions(QUESTIONS_ASKED[:4]), store, {"model": 1}, ignore)
    before = {path: path.stat().st_mtime_ns for path in few}
    many = run_shard(job, questions(), store, {"model": 1}, ignore)
    assert many[:2] == few
    assert len(many) == 3
    assert {path: path.stat().st_mtime_ns for path in few} == before
    assert not set(run_shard(job, questions(), store, {"model": 2}, ignore)) & set(many)


def test_a_shard_put_together_from_chunks_equals_one_chunk(inference, tmp_path):
    splits = ["test", "train", "test", "validation", "test"]
    files = []
    for size in (2, 5):
        job = inference(chunk_questions=size)
        chunks = run_shard(job, questions(split=splits), Store(tmp_path / str(size)), {}, ignore)
        rows = shard_answers(chunks)
        names = ("clean/attn/last", "knockout/resid/exact_answer_last")
        outs = {name: tmp_path / f"{size}-{name.replace('/', '.')}" for name in names}
        write_shard(chunks, outs, {})
        files.append((rows, {name: ActivationFiles([path]) for name, path in outs.items()}))
    (rows_a, a), (rows_b, b) = files
    assert rows_a == rows_b
    for name, parts in a.items():
        for layer in range(4):
            torch.testing.assert_close(parts.layer(layer), b[name].layer(layer), atol=1e-5, rtol=1e-5)


def test_a_shard_without_questions_has_empty_files(inference, tmp_path):
    job = inference()
    chunks = run_shard(job, questions()[:0], Store(tmp_path), {}, ignore)
    write_shard(chunks, {"clean/attn/last": tmp_path / "empty.safetensors"}, {})
    assert ActivationFiles([tmp_path / "empty.safetensors"]).rows == 0
    assert shard_answers(chunks) == []


def test_a_damaged_chunk_is_refused_by_name(tmp_path):
    path = tmp_path / "chunk.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(DeltapError, match=r"chunk\.safetensors: damaged chunk"):
        read_tensor(path, "x")
