"""A language model as a worker, against a real OpenAI client and a real (tiny) engine."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import tiny
from deltap import lock
from deltap.errors import DeltapError
from deltap.exact.found import NamedSpans
from deltap.given import Given, read_spans
from deltap.llm.ask import Refused, Task, ask, read_object
from deltap.llm.cache import Cached
from deltap.llm.judge import judge
from deltap.llm.local import LocalModel
from deltap.llm.replier import replier
from deltap.llm.server import ServerModel
from deltap.llm.spans import find_spans, read_answer, read_question
from deltap.lock import Owner
from deltap.settings import LlmSettings, ModelSettings, Server
from stand_in_llm import serve

TASK = Task("Repeat the text as JSON.", (("one", '{"text": "one"}'),))


class Scripted:
    """Replies from a list of dictionaries, one for each round."""

    def __init__(self, *rounds: dict[str, str]) -> None:
        self.rounds = list(rounds)
        self.asked: list[list[str]] = []

    def identity(self) -> dict[str, Any]:
        return {"scripted": True}

    def replies(self, task: Task, texts: Sequence[str], progress: Any) -> list[str]:
        self.asked.append(list(texts))
        found = self.rounds[len(self.asked) - 1]
        return [found[text.splitlines()[0]] for text in texts]


def silent(done: int) -> None:
    pass


def server(url: str, **fields: Any) -> LlmSettings:
    return LlmSettings(server=Server(url=url, model="worker", timeout=20, **fields), max_new_tokens=50)


# What is asked, and asked once more.


def test_a_reply_that_cannot_be_used_is_shown_to_the_model_once_more() -> None:
    said = Scripted({"a": "good", "b": "bad", "c": "bad"}, {"b": "good", "c": "still bad"})

    def read(index: int, reply: str) -> str:
        if "bad" in reply:
            raise Refused("it is bad")
        return f"{index} {reply}"

    assert ask(said, TASK, ["a", "b", "c"], read, silent) == ["0 good", "1 good", None]
    assert said.asked == [
        ["a", "b", "c"],
        [f"{text}\n(You replied 'bad', which cannot be used: it is bad.)" for text in ("b", "c")],
    ]


def test_every_text_is_counted_once() -> None:
    done: list[int] = []
    with serve(lambda message: "nothing") as requests:
        ask(ServerModel(server(requests.url)), TASK, ["a", "b"], lambda index, reply: read_object(reply), done.append)
    assert sum(done) == 2
    assert len(requests) == 4


@pytest.mark.parametrize(
    "reply",
    [
        '{"a": "{x}"}',
        'Sure! ```json\n{"a": "{x}"}\n``` I hope {this} helps.',
        '{ no {"a": "{x}"}',
        ' {"a":"{x}"} {"b": 1}',
    ],
)
def test_the_json_object_is_found_whatever_stands_around_it(reply: str) -> None:
    assert read_object(reply) == {"a": "{x}"}


@pytest.mark.parametrize("reply", ["", "France", "{", '["a"]', "{" * 5000])
def test_a_reply_without_an_object_is_refused(reply: str) -> None:
    with pytest.raises(Refused, match="no JSON object"):
        read_object(reply)


# What a reply has to be.

QUESTION = "What is the capital of France?"


@pytest.mark.parametrize(
    ("reply", "phrases"),
    [
        ({"subject": "France", "property": "capital"}, ("France", "capital")),
        ({"subject": "france", "property": None}, ("france",)),
        ({"property": " capital of "}, ("capital of",)),
    ],
)
def test_phrases_stand_in_the_question_word_for_word(reply: dict[str, Any], phrases: tuple[str, ...]) -> None:
    assert read_question(json.dumps(reply), QUESTION) == phrases


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"subject": "Paris"}, "'Paris' does not stand in the question word for word"),
        ({"subject": "Fran"}, "'Fran' does not stand"),
        ({"subject": "France", "property": "the city"}, "'the city' does not stand"),
        ({"subject": None, "property": ""}, "neither subject nor property"),
        ({"subject": ["France"]}, "subject is no text"),
    ],
)
def test_other_phrases_are_refused_with_the_reason(reply: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        read_question(json.dumps(reply), QUESTION)


def test_the_core_stands_in_the_reply_word_for_word() -> None:
    assert read_answer('{"core": "Paris"}', "It is Paris.") == "Paris"
    for reply in ('{"core": "Lyon"}', '{"core": null}', '{"core": 3}', "Paris"):
        with pytest.raises(Refused):
            read_answer(reply, "It is Paris.")


# The cache.


def test_nothing_is_asked_for_twice(tmp_path: Path) -> None:
    with serve(lambda message: message[-1]) as requests:
        model = Cached(ServerModel(server(requests.url)), tmp_path)
        assert model.replies(TASK, ["a", "b", "a"], silent) == ["a", "b", "a"]
        assert len(requests) == 2
        assert model.replies(TASK, ["b", "c"], silent) == ["b", "c"]
        assert len(requests) == 3
        other = Task(TASK.instruction + " Please.", TASK.examples)
        Cached(ServerModel(server(requests.url)), tmp_path).replies(other, ["a"], silent)
        assert len(requests) == 4
        Cached(ServerModel(server(requests.url, options={"seed": 1})), tmp_path).replies(TASK, ["a"], silent)
        assert len(requests) == 5


ASKER = """
import sys
from pathlib import Path
from deltap.llm.ask import Task
from deltap.llm.cache import Cached
from deltap.llm.server import ServerModel
from deltap.settings import LlmSettings, Server
url, cache, first, last = sys.argv[1:]
model = Cached(ServerModel(LlmSettings(server=Server(url=url, model="worker"), max_new_tokens=50)), Path(cache))
texts = [f"text {number}" for number in range(int(first), int(last))]
assert model.replies(Task("Repeat the text.", ()), texts, lambda done: None) == texts
"""


def test_processes_that_want_the_same_replies_share_the_asking(tmp_path: Path) -> None:
    def slowly(message: str) -> str:
        time.sleep(0.02)
        return message.splitlines()[-1]

    with serve(slowly) as requests:
        ranges = [(0, 400), (0, 400), (200, 600)]
        command = [sys.executable, "-c", ASKER, requests.url, str(tmp_path)]
        processes = [subprocess.Popen([*command, str(first), str(last)]) for first, last in ranges]
        assert [process.wait(120) for process in processes] == [0, 0, 0]
    asked = [request["messages"][-1]["content"] for request in requests]
    assert sorted(asked) == sorted({f"Repeat the text.\ntext {number}" for number in range(600)})
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json"}


def test_a_killed_process_keeps_nobody_from_asking(tmp_path: Path) -> None:
    asking = threading.Event()

    def never(message: str) -> str:
        asking.set()
        time.sleep(1)
        return message.splitlines()[-1]

    with serve(never) as requests:
        process = subprocess.Popen([sys.executable, "-c", ASKER, requests.url, str(tmp_path), "0", "3"])
        assert asking.wait(60)
        process.kill()
        process.wait()
        assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".lock"}
        subprocess.run([sys.executable, "-c", ASKER, requests.url, str(tmp_path), "0", "3"], check=True, timeout=60)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json"}


def test_the_lock_of_a_process_killed_after_its_reply_was_kept_goes_too(tmp_path: Path) -> None:
    with serve(lambda message: message[-1]) as requests:
        model = Cached(ServerModel(server(requests.url)), tmp_path)
        model.replies(TASK, ["a", "b"], silent)
        (kept, _) = tmp_path.rglob("*.json")
        gone = Owner(socket.gethostname(), 2**22 - 1, 0.0)
        kept.with_suffix(".lock").write_text(json.dumps(asdict(gone)))
        counted: list[int] = []
        assert model.replies(TASK, ["a", "b"], counted.append) == ["a", "b"]
        assert sum(counted) == 2
        assert len(requests) == 2
    assert not list(tmp_path.rglob("*.lock"))


def test_whoever_cannot_be_seen_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_UNSEEN", 0.2)
    with serve(lambda message: message[-1]) as requests:
        model = Cached(ServerModel(server(requests.url)), tmp_path)
        model.replies(TASK, ["a"], silent)
        (kept,) = tmp_path.rglob("*.json")
        kept.with_suffix(".lock").write_text(json.dumps(asdict(Owner("elsewhere", 1, 0.0))))
        kept.unlink()
        assert model.replies(TASK, ["a"], silent) == ["a"]
        assert len(requests) == 2


def test_a_damaged_reply_is_asked_for_again(tmp_path: Path) -> None:
    with serve(lambda message: message[-1]) as requests:
        model = Cached(ServerModel(server(requests.url)), tmp_path)
        model.replies(TASK, ["a"], silent)
        for path in tmp_path.rglob("*.json"):
            path.write_text("{")
        assert model.replies(TASK, ["a"], silent) == ["a"]
        assert len(requests) == 2


# A server.


def test_a_request_names_model_length_and_no_sampling() -> None:
    with serve(lambda message: "x") as requests:
        ServerModel(server(requests.url)).replies(TASK, ["one"], silent)
        ServerModel(server(requests.url, options={"max_completion_tokens": 9, "temperature": 1})).replies(
            TASK, ["one"], silent
        )
    first, second = requests
    assert first["messages"] == [{"role": "user", "content": "Repeat the text as JSON.\none"}]
    assert (first["model"], first["max_tokens"], first["temperature"]) == ("worker", 50, 0)
    assert (second["max_completion_tokens"], second["temperature"]) == (9, 1)
    assert "max_tokens" not in second


def test_a_busy_server_is_asked_again() -> None:
    with serve(lambda message: "x", busy=2) as requests:
        assert ServerModel(server(requests.url, parallel=1)).replies(TASK, ["one"], silent) == ["x"]


def test_replies_come_in_the_order_of_the_texts() -> None:
    texts = [f"text {number}" for number in range(30)]
    with serve(lambda message: message.splitlines()[-1]) as requests:
        assert ServerModel(server(requests.url, parallel=4)).replies(TASK, texts, silent) == texts


def test_a_refused_key_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_KEY", "right")
    with serve(lambda message: "x", key="right") as requests:
        assert ServerModel(server(requests.url, key_variable="WORKER_KEY")).replies(TASK, ["a"], silent) == ["x"]
        with pytest.raises(DeltapError, match=r"refuses the key .* llm\.server\.key_variable"):
            ServerModel(server(requests.url)).replies(TASK, ["a"], silent)
    monkeypatch.delenv("WORKER_KEY")
    with pytest.raises(DeltapError, match="WORKER_KEY is not set"):
        ServerModel(server("http://localhost/v1", key_variable="WORKER_KEY"))


def test_a_wrong_address_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltap.llm.server._RETRIES", 0)
    with serve(lambda message: "x") as requests, pytest.raises(DeltapError, match=r"does llm.server.model exist there"):
        ServerModel(server(requests.url + "/v2")).replies(TASK, ["a"], silent)
    with pytest.raises(DeltapError, match="no server answers"):
        ServerModel(server(requests.url)).replies(TASK, ["a"], silent)


# The project's own engine.


@pytest.mark.parametrize("kind", ["base", "chat"])
def test_a_model_directory_replies_with_what_it_generates(tmp_path: Path, kind: Any) -> None:
    directory = tiny.save(tmp_path / "model", "llama")
    entry = ModelSettings(kind=kind, dtype="float32", device="cpu", max_new_tokens=6)
    model = LocalModel(directory, entry)
    texts = ["What is the capital of France?", "Who?"]
    together = model.replies(TASK, texts, silent)
    assert any(together)
    assert [model.replies(TASK, [text], silent)[0] for text in texts] == together
    assert LocalModel(directory, entry).identity() == model.identity()
    assert LocalModel(directory, entry.model_copy(update={"max_new_tokens": 7})).identity() != model.identity()


def test_a_model_is_loaded_for_what_is_not_kept_only(tmp_path: Path) -> None:
    directory = tiny.save(tmp_path / "model", "llama")
    entry = ModelSettings(kind="base", dtype="float32", device="cpu", max_new_tokens=6)
    said = replier(LlmSettings(model="m"), entry, directory, tmp_path / "cache").replies(TASK, ["one"], silent)
    again = LocalModel(directory, entry)
    assert Cached(again, tmp_path / "cache").replies(TASK, ["one"], silent) == said
    assert again._model is None


# Exact tokens.


def sample(question_id: str, question: str, answer: str, subject: str | None = None) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question": question,
        "subject": subject,
        "property": "capital" if subject else None,
        "answer": answer,
    }


SAMPLES = [
    sample("1", "What is the capital of France?", "It is Paris.", subject="France"),
    sample("2", "what is the tallest mountain of peru", "huascarán", None),
    sample("3", "Who wrote Emma?", "", None),
]


def worker(message: str) -> str:
    """Name the last word of a question, and of a reply."""
    text = message.split("\nReply: ")[-1].splitlines()[-1]
    word = re.findall(r"\w+", text)[-1]
    return json.dumps({"core": word} if "\nReply: " in message else {"subject": word})


@pytest.mark.parametrize(
    ("extractor", "expected"),
    [
        (
            "llm",
            [NamedSpans(("France",), "Paris"), NamedSpans(("peru",), "huascarán"), NamedSpans(("Emma",), None)],
        ),
        ("auto", [NamedSpans((), "Paris"), NamedSpans(("peru",), "huascarán"), NamedSpans(("Emma",), None)]),
    ],
)
def test_the_model_is_asked_what_nobody_before_it_knows(extractor: Any, expected: list[NamedSpans]) -> None:
    done: list[int] = []
    with serve(worker) as requests:
        found = find_spans(ServerModel(server(requests.url)), SAMPLES, extractor, Given(), done.append)
    assert found == expected
    assert sum(done) == 2 * len(SAMPLES)
    assert len(requests) == sum(bool(item.exact_question) + bool(item.exact_answer) for item in expected)


def test_the_model_is_not_asked_what_a_file_gives(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    rows = [
        {"question_id": "2", "exact_question": ["tallest mountain", "peru"], "exact_answer": "huascarán"},
        {"question_id": "1", "exact_answer": "Lyon"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = read_spans([path], SAMPLES, "m", "d", 0)
    with serve(worker) as requests:
        found = find_spans(ServerModel(server(requests.url)), SAMPLES, "auto", given, silent)
    # "Lyon" does not stand in "It is Paris.", so that the model names the core.
    assert found == [NamedSpans((), "Paris"), NamedSpans((), None), NamedSpans(("Emma",), None)]


def test_no_gold_answer_and_no_label_is_shown_to_the_finder() -> None:
    shown = [{**item, "gold_answers": ["GOLD"], "label": "LABEL"} for item in SAMPLES]
    with serve(worker) as requests:
        find_spans(ServerModel(server(requests.url)), shown, "llm", Given(), silent)
    assert not re.search("GOLD|LABEL", json.dumps(requests))


# Labels.


def test_the_judge_compares_with_the_gold_answers() -> None:
    def right(message: str) -> str:
        reply, gold = re.search("Reply: (.*)\nRight answers: (.*)", message).groups()  # type: ignore[union-attr]
        return "perhaps" if reply == "unclear" else json.dumps({"right": reply in gold.split("; ")})

    answers = [
        {"question": "Q?", "answer": answer, "gold_answers": ["Rome", "Roma", *map(str, range(100))]}
        for answer in ("Roma", "Oslo", "unclear")
    ]
    with serve(right) as requests:
        assert judge(ServerModel(server(requests.url)), answers, silent) == ["truthful", "hallucinated", None]
    assert len(requests) == 4
    assert "99" not in json.dumps(requests[0])
