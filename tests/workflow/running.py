"""Running the workflow as a user does, on tiny models and question files made for it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import yaml

import tiny
from deltap.exact.answer_rules import span_by_rules
from deltap.models.answers import read_answer
from deltap.models.load import end_ids, load
from deltap.models.prompts import Prompter
from deltap.settings import ModelSettings, PromptSettings

ROOT = Path(__file__).parents[2]
SUBJECTS = [f"{a}{b}" for a in ("Ar", "Bel", "Cor", "Dun", "El", "Fa", "Gor", "Hel") for b in
            ("ania", "bury", "cia", "dor", "even", "ford", "gate", "ham", "istan", "land")]  # fmt: skip
MAX_NEW_TOKENS = 12


def snakemake(
    directory: Path, configfile: Path, *arguments: str, check: bool = True, checkout: Path = ROOT
) -> subprocess.CompletedProcess:
    """Run the workflow of ``checkout`` in ``directory`` and return what it printed (both streams together)."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(checkout / "Snakefile"), "--directory", str(directory),
        "--configfile", str(configfile), "--cores", "2", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert not check or done.returncode == 0, done.stdout
    return done


def model_answers(directory: Path, kind: str, questions: list[str]) -> list[str]:
    """Return the exact answers that a model gives, "" where there is none."""
    entry = ModelSettings(kind=kind, dtype="float32", device="cpu", max_new_tokens=MAX_NEW_TOKENS)
    tokenizer, engine = load(directory, entry)
    prompter = Prompter(tokenizer, kind, PromptSettings())
    prompts = [prompter(question).ids for question in questions]
    generated = engine.generate(prompts, end_ids(tokenizer, engine, kind == "base"), MAX_NEW_TOKENS)
    result = []
    for prompt, ids, question in zip(prompts, generated, questions, strict=True):
        answer = read_answer(tokenizer, prompt, ids, truncated=False, thinking=False).text
        span = span_by_rules(answer, question)
        result.append(span.text_in(answer) if span else "")
    return result


def project(folder: Path) -> Path:
    """Write two tiny models, two question files and a configuration; return the configuration's path.

    Gold answers are what the models say to every other question, so that both classes are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Families and seeds whose answers are mostly short and not empty.
    tiny.save(folder / "base", "llama", seed=0)
    tiny.save(folder / "chat", "mistral", seed=2)
    capitals = [f"What is the capital of {subject}?" for subject in SUBJECTS]
    rulers = [f"who was the first ruler of {subject.lower()}" for subject in SUBJECTS]
    gold = {}
    for questions in (capitals, rulers):
        base, chat = (model_answers(folder / kind, kind, questions) for kind in ("base", "chat"))
        for index, question in enumerate(questions):
            said = [answer for answer in (base[index], chat[index]) if answer and index % 2]
            gold[question] = [*said, f"Nowhere {index}"]
    with (folder / "capitals.tsv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["id", "subj", "prop", "obj", "s_pop", "question", "possible_answers"])
        for index, (subject, question) in enumerate(zip(SUBJECTS, capitals, strict=True)):
            answers = gold[question]
            writer.writerow([index, subject, "capital", answers[0], 10 * index, question, json.dumps(answers)])
    lines = [json.dumps({"question": question, "answer": gold[question]}) for question in rulers]
    (folder / "rulers.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    common = {"dtype": "float32", "device": "cpu", "gpus": 0, "max_new_tokens": MAX_NEW_TOKENS}
    write_yaml(
        folder / "my_models.yaml",
        {
            "tiny-base": {"label": "Tiny (base)", "source": {"path": "base"}, "kind": "base", **common},
            "tiny-chat": {"label": "Tiny (chat)", "source": {"path": "chat"}, "kind": "chat", **common},
        },
    )
    write_yaml(
        folder / "my_datasets.yaml",
        {
            "capitals": {"label": "Capitals", "format": "popqa", "path": "capitals.tsv"},
            "rulers": {"label": "Rulers", "format": "nq", "path": "rulers.jsonl"},
        },
    )
    return write_yaml(
        folder / "mine.yaml",
        {
            "run": "mine",
            "models": ["tiny-base", "tiny-chat"],
            "datasets": ["capitals", "rulers"],
            "model_files": [str(folder / "my_models.yaml")],
            "dataset_files": [str(folder / "my_datasets.yaml")],
            "figures": ["delta_p"],
            "questions": {"number": None, "splits": {"train": 0.4, "validation": 0.25, "test": 0.35}},
            "inference": {"sites": ["attn", "resid"], "positions": ["exact_answer_last"]},
            "bootstrap": {"draws": 200},
        },
    )


def write_yaml(path: Path, value: dict) -> Path:
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    return path


def changed(configfile: Path, **changes: object) -> Path:
    """Write a copy of a configuration with other top-level values, and return its path."""
    value = yaml.safe_load(configfile.read_text(encoding="utf-8"))
    path = configfile.with_name(f"changed-{len(list(configfile.parent.glob('changed-*')))}.yaml")
    return write_yaml(path, {**value, **changes})


def labelled(configfile: Path, **changes: object) -> Path:
    """Write a copy of a configuration with labels from a file: there are both classes, whatever a model says."""
    asked = [row["question"] for row in csv.DictReader((configfile.parent / "capitals.tsv").open(), delimiter="\t")]
    asked += [json.loads(line)["question"] for line in (configfile.parent / "rulers.jsonl").open()]
    labels = configfile.parent / "labels.jsonl"
    rows = [{"question": text, "label": ("truthful", "hallucinated")[index % 2]} for index, text in enumerate(asked)]
    labels.write_text("\n".join(map(json.dumps, rows)))
    return changed(configfile, given={"labels": [str(labels)]}, **changes)


def with_definition(configfile: Path, kind: str, name: str, /, **change: object) -> Path:
    """Return a configuration whose model, data set or figure ``name`` is defined differently, or for the first time."""
    folder = configfile.parent
    file = folder / f"my_{kind}s.yaml"
    definitions = yaml.safe_load(file.read_text()) if file.exists() else {}
    definitions[name] = {**definitions.get(name, {}), **change}
    number = len(list(folder.glob("other-*")))
    path = write_yaml(folder / f"other-{number}.yaml", definitions)
    return changed(configfile, **{f"{kind}_files": [str(path)]})


def with_figure(configfile: Path, **definition: object) -> Path:
    """Return a configuration with the figure ``mine`` alone."""
    return changed(with_definition(configfile, "figure", "mine", **definition), figures=["mine"])


def planned(output: str) -> dict[str, int]:
    """Return the rules and their numbers of jobs in a dry run's table."""
    jobs = {}
    for line in output.split("Job stats:")[-1].splitlines():
        words = line.split()
        if len(words) == 2 and words[1].isdigit() and words[0] not in ("total", "all", "jobid:"):
            jobs[words[0]] = int(words[1])
    return jobs
