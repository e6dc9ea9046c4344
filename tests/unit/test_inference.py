"""The inference job on a tiny model: exclusions, bad numbers, chunks and shards."""

import json

import pyarrow as pa
import pytest
import torch
from asking import inference_job

import tiny
from deltap.errors import DeltapError
from deltap.exact.found import NamedSpans
from deltap.generation import Generated, shard_questions
from deltap.given import read_answers, read_spans
from deltap.inference import run_shard, shard_answers, write_shard
from deltap.models.engine import Engine
from deltap.models.language_model import LanguageModel
from deltap.models.prompts import Prompter
from deltap.named import Named
from deltap.settings import InferenceSettings, InferenceStage, ModelSettings, PromptSettings
from deltap.store import Store, StoredTensor
from deltap.tables import QUESTIONS, write_table
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
        answers = {"given": given_answers, "generated": generated}
        return inference_job(engine, tokenizer, stage, ends or ENDS, tmp_path / "answers", named, **answers)

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
    monkeypatch.setattr(job.model.engine, "generate_and_read", lambda *arguments: (answers, {}))
    inner = job.model.engine.model.model.layers[3].mlp.forward
    job.model.engine.model.model.layers[3].mlp.forward = lambda x: inner(x) * float("nan")
    with pytest.raises(DeltapError, match=r"m, d, clean pass, site resid: NaN or infinity at question 'q0', layer 3"):
        job.chunk(samples, ignore)


def test_a_prompt_longer_than_the_context_is_refused_before_any_work(inference, tmp_path):
    job, long = inference(chunk_questions=1), "What is " + "very " * 300 + "long?"
    asked, first = questions(["What is A?", long, long]), "prompts are longer than the model's context, first question"
    with pytest.raises(DeltapError, match=f"2 {first} 'q1'"):
        run_shard(job, asked, Store(tmp_path), {}, ignore)
    assert not list(tmp_path.iterdir())
    with pytest.raises(DeltapError, match=f"2 {first} 'q1'"):
        job.prepare(asked.to_pylist())


def test_an_exact_question_at_position_0_is_refused_and_all_of_them_stop_the_job(inference, tmp_path, monkeypatch):
    job = inference()
    samples = job.prepare(questions().to_pylist())
    moved = [type(sample)(sample.question, sample.prompt, sample.found, [0, 1]) for sample in samples]
    _, rows = job.chunk(moved[:1] + samples[1:], ignore)
    assert [row["exclusion"] for row in rows] == ["exact_question_at_position_0", None, None, None, None]
    monkeypatch.setattr(job, "_sample", lambda question, prompt: moved[0])
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


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_one_after_the_other_are_the_chunks_of_one_shard(inference, tmp_path, shards):
    """So the number of shards changes no number: the chunks are found in the store, none is computed again."""
    write_table(tmp_path / "questions.parquet", questions(), QUESTIONS, {})
    job, store = inference(chunk_questions=2), Store(tmp_path / "store")
    whole = run_shard(job, questions(), store, {}, ignore)
    there = set(store.root.rglob("*.safetensors"))
    settings = InferenceSettings(shards=shards, chunk_questions=2)
    parts = [shard_questions(tmp_path / "questions.parquet", shard, settings) for shard in range(shards)]
    assert pa.concat_tables(parts).equals(questions())
    found = [path for part in parts if len(part) for path in run_shard(job, part, store, {}, ignore)]
    assert found == whole
    assert set(store.root.rglob("*.safetensors")) == there


def test_a_shard_put_together_from_chunks_equals_one_chunk(inference, tmp_path):
    splits = ["test", "train", "test", "validation", "test"]
    files = []
    for size in (2, 5):
        job = inference(chunk_questions=size)
        chunks = run_shard(job, questions(split=splits), Store(tmp_path / str(size)), {}, ignore)
        rows = pa.concat_tables(shard_answers(chunks))
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
    assert [len(part) for part in shard_answers(chunks)] == [0]


def test_a_damaged_chunk_is_refused_by_name(tmp_path):
    path = tmp_path / "chunk.safetensors"
    path.write_bytes(b"nonsense")
    with pytest.raises(DeltapError, match=r"chunk\.safetensors: damaged"):
        StoredTensor(path, "x")[:]


# Answers and exact tokens that come from elsewhere.


def given_file(tmp_path, name, rows):
    path = tmp_path / name
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_answers_are_generated_once_for_all_extractors(inference, monkeypatch):
    first = inference(extractor="auto")
    _, said = first.chunk(first.prepare(questions().to_pylist()), ignore)
    for path, answers in first.generation.fresh().items():
        Store(path.parents[1]).write(path, {}, answers)
    second = inference(extractor="rules")
    monkeypatch.setattr(second.model.engine, "generate_and_read", None)
    _, rows = second.chunk(second.prepare(questions().to_pylist()), ignore)
    assert [row["answer_ids"] for row in rows] == [row["answer_ids"] for row in said]
    assert {row["exact_question_source"] for row in rows} == {"rules"}


def test_given_answers_replace_the_models_own(inference, tmp_path, monkeypatch):
    asked = questions().to_pylist()
    path = given_file(
        tmp_path,
        "answers.jsonl",
        [
            {"question_id": "q0", "answer": "It is Paris."},
            {"question": asked[1]["question"].upper(), "answer": "Zürich – 東京"},
            {"question_id": "q2", "answer": " "},
            {"question_id": "elsewhere", "answer": "x"},
        ],
    )
    job = inference(given_answers=read_answers([path], asked, "m", "d", 0))
    monkeypatch.setattr(job.model.engine, "generate_and_read", None)
    samples = job.prepare(asked)
    tensors, rows = job.chunk(samples, ignore)
    assert [row["answer"] for row in rows] == ["It is Paris.", "Zürich – 東京", "", "", ""]
    assert [row["exclusion"] for row in rows] == [None, None, "empty_answer", "no_given_answer", "no_given_answer"]
    assert [row["answer_given"] for row in rows] == [True, True, True, False, False]
    assert rows[0]["exact_answer"]["text"] == "Paris"
    # Read where a model that had said so itself would be read.
    ids = samples[0].prompt.ids + job.model.tokenizer(" It is Paris.", add_special_tokens=False)["input_ids"]
    direct = job.model.engine.forward([ids], [[len(ids) - 1, rows[0]["exact_answer_tokens"][-1]]], ("attn",))
    torch.testing.assert_close(tensors["clean/attn/last"][:, 0], direct["attn"][:, 0, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("text", ["Paris", "It's 3,000 km", "naïve  café", "<|end|> in the middle", "京"])
@pytest.mark.parametrize("kind", ["base", "chat"])
@pytest.mark.parametrize("make", [tiny.tokenizer, tiny.sentencepiece])
def test_an_answer_is_spelled_to_the_letter(make, kind, text):
    made, entry = make(), ModelSettings(kind=kind)
    model = LanguageModel(None, made, Prompter(made, kind, PromptSettings()), ENDS, entry, "")
    prompt = model.prompter("Who?")
    ids = model.spell(prompt, text)
    assert model.read(prompt, ids).text == text
    assert not set(ids) & set(made.all_special_ids)
    # What a model says itself begins in the same way.
    begun = made.decode([*prompt.ids, *ids])
    assert ("Answer: " + text in begun) == (kind == "base")


def test_exact_tokens_are_recorded_with_who_found_them(inference, tmp_path):
    asked = questions().to_pylist()
    answers = [{"question_id": row["question_id"], "answer": f"{row['subject']} of old"} for row in asked]
    spans = [
        {"question_id": "q0", "exact_question": ["What is"], "exact_answer": "of old"},
        {"question_id": "q1", "exact_question": "no such words"},
        {"question_id": "q1", "exact_answer": "old", "answer": "another answer"},
    ]
    given = read_spans([given_file(tmp_path, "spans.jsonl", spans)], asked, "m", "d", 0)
    llm = {"q2": NamedSpans(("the capital",), "old"), "q3": NamedSpans(("nowhere",), "nothing")}
    parts = {"named": Named(given, llm), "given_answers": read_answers([given_file(tmp_path, "a.jsonl", answers)],
             asked, "m", "d", 0)}  # fmt: skip

    def found(extractor):
        job = inference(extractor=extractor, **parts)
        _, rows = job.chunk(job.prepare(asked), ignore)
        return [
            (
                row["exact_question_source"],
                row["exact_answer_source"],
                row["exact_answer"] and row["exact_answer"]["text"],
            )
            for row in rows[:4]
        ]

    assert found("auto") == [
        ("given", "given", "of old"), ("fields", "rules", "Belania of old"), ("fields", "llm", "old"),
        ("fields", "rules", "Dunham of old"),
    ]  # fmt: skip
    assert found("given") == [
        ("given", "given", "of old"), (None, "rules", "Belania of old"), (None, "rules", "Corford of old"),
        (None, "rules", "Dunham of old"),
    ]  # fmt: skip
    assert found("llm") == [(None, None, None), (None, None, None), ("llm", "llm", "old"), (None, None, None)]


def test_given_exact_tokens_that_are_not_used_are_told(inference, tmp_path, caplog):
    asked = questions().to_pylist()
    spans = [{"question_id": "q0", "exact_question": "Arland"}, {"question_id": "q1", "exact_question": "Beltania"}]
    given = read_spans([given_file(tmp_path, "spans.jsonl", spans)], asked, "m", "d", 0)
    inference(named=Named(given)).check(pa.Table.from_pylist(asked, QUESTIONS))
    assert "the given exact tokens of 1 questions are not used, first 'q1'" in caplog.text


def test_samples_outside_the_test_split_are_not_computed_again_after_their_answer(inference, tmp_path, monkeypatch):
    asked = questions(split=["train", "validation", "train", "test", "test"])
    job, passed = inference(), []
    for name in ("forward", "clean_and_knockout"):
        inner = getattr(job.model.engine, name)
        monkeypatch.setattr(
            job.model.engine, name, lambda ids, *a, inner=inner, **k: passed.append(len(ids)) or inner(ids, *a, **k)
        )
    tensors, rows = job.chunk(job.prepare(asked.to_pylist()), ignore)
    assert not any(row["exclusion"] for row in rows)
    assert passed == [2, 0]
    # With the same answers from elsewhere, all of them go through a pass.
    said = {row["question_id"]: Generated(row["answer_ids"]) for row in rows}
    again, same = inference(generated=said), inference().prepare(asked.to_pylist())
    expected, other = again.chunk(same, ignore)
    assert [row["clean_row"] for row in other] == [row["clean_row"] for row in rows] == [0, 1, 2, 3, 4]
    for name, states in tensors.items():
        torch.testing.assert_close(states, expected[name], atol=1e-5, rtol=1e-5)


def test_answers_are_kept_after_the_activations_that_came_up_with_them(inference, tmp_path, monkeypatch):
    """Else a job that was killed in between would read them in passes of their own, to other digits."""
    written: list[str] = []
    inner = Store.write

    def write(store, path, tensors, said):
        written.append(sorted(tensors)[:1])
        inner(store, path, tensors, said)

    monkeypatch.setattr(Store, "write", write)
    run_shard(inference(chunk_questions=3), questions(), Store(tmp_path / "answers"), {}, ignore)
    assert written == [["clean/attn/exact_answer_last"], []] * 2


def test_progress_counts_three_steps_for_each_question(inference, tmp_path):
    asked = questions(split=["train", "validation", "test", "test", "test"], subject=False)
    done: list[int] = []
    run_shard(
        inference(extractor="fields", chunk_questions=2), asked.slice(0, 4), Store(tmp_path / "s"), {}, done.append
    )
    run_shard(inference(chunk_questions=2), asked, Store(tmp_path / "s"), {}, done.append)
    assert sum(done) == 3 * (4 + 5)


def test_a_chunk_depends_on_what_is_given_for_its_questions(inference, tmp_path):
    asked, store = questions(), Store(tmp_path / "chunks")

    def paths(answer, phrase):
        rows = [{"question_id": f"q{index}", "answer": "a"} for index in range(4)]
        given = read_answers(
            [given_file(tmp_path, "a.jsonl", [*rows, {"question_id": "q4", "answer": answer}])],
            asked.to_pylist(), "m", "d", 0,
        )  # fmt: skip
        named = Named(llm={"q0": NamedSpans((phrase,), None)})
        job = inference(given_answers=given, named=named, chunk_questions=2)
        return run_shard(job, asked, store, {}, ignore)

    one = paths("a", "capital")
    assert paths("a", "capital") == one
    assert [a == b for a, b in zip(one, paths("b", "capital"), strict=True)] == [True, True, False]
    assert [a == b for a, b in zip(one, paths("a", "What"), strict=True)] == [False, True, True]


def test_a_chunk_without_a_given_answer_is_not_one_that_the_model_answers(inference, tmp_path):
    asked, store = questions(), Store(tmp_path / "chunks")
    path = given_file(tmp_path, "a.jsonl", [{"question_id": "q0", "answer": "a"}])
    given = read_answers([path], asked.to_pylist(), "m", "d", 0)
    with_file = run_shard(inference(given_answers=given, chunk_questions=2), asked, store, {}, ignore)
    without = run_shard(inference(chunk_questions=2), asked, store, {}, ignore)
    assert not set(with_file) & set(without)
    without_answer = pa.concat_tables(shard_answers(with_file[1:]))
    assert set(without_answer["exclusion"].to_pylist()) == {"no_given_answer"}


def test_a_given_answer_is_never_cut_off(inference, tmp_path):
    asked = questions().to_pylist()[:1]
    long = " ".join(["Paris"] * 40)
    path = given_file(tmp_path, "a.jsonl", [{"question_id": "q0", "answer": long}])
    job = inference(given_answers=read_answers([path], asked, "m", "d", 0))
    _, rows = job.chunk(job.prepare(asked), ignore)
    assert (rows[0]["answer"], rows[0]["exclusion"]) == (long, None)


def test_what_the_answers_job_said_is_taken_over(inference, monkeypatch):
    generated = {"q0": Generated([100, 101]), "q1": Generated([], given=True), "q2": None}
    job = inference(generated=generated)
    monkeypatch.setattr(job.model.engine, "generate_and_read", None)
    _, rows = job.chunk(job.prepare(questions(QUESTIONS_ASKED[:3]).to_pylist()), ignore)
    assert [row["answer_ids"] for row in rows] == [[100, 101], [], []]
    assert [row["exclusion"] for row in rows][1:] == ["empty_answer", "no_given_answer"]
