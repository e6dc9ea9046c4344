"""The plan of a run: what each model costs, on which device how long, and what one pass per layer would have cost."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from deltap import markdown
from deltap.cost import BYTES, Cost, Shape, Tokens, cost, generation_flops
from deltap.interventions.cost import CutCost, cut_costs
from deltap.settings import InterventionSettings, ModelEntry, PlanSettings

_LOADING = 0.1
"""The share of the time from which on loading is worth a warning."""


@dataclass(frozen=True)
class Planned:
    """One model of the run."""

    model: str
    shape: Shape
    cost: Cost
    loads: int
    """Jobs that load the model."""
    gpus: int
    engine: str
    key_value_bytes: int
    """Cached keys and values of a full batch."""
    hours: Mapping[str, float]
    """By device: wall time of all jobs one after another, loading included."""
    loading: Mapping[str, float]
    """By device: the share of it that is loading."""
    cuts: Sequence[CutCost] = ()
    """Other cuts, of all extractors together."""
    read_bytes: int = 0
    """Activations of a full batch that are held until it is answered, or until it is cut in every window."""

    def bytes_per_device(self) -> float:
        """Return what one device holds: weights, cached keys and values, and the activations, which the first holds."""
        return (self.cost.weights + self.key_value_bytes) / max(1, self.gpus) + self.read_bytes


def planned(
    name: str,
    entry: ModelEntry,
    shape: Shape,
    questions: Sequence[int],
    test: float,
    settings: PlanSettings,
    *,
    sites: int,
    positions: int,
    shards: int = 1,
    extractors: int = 1,
    answers_apart: bool = False,
    interventions: InterventionSettings | None = None,
) -> Planned:
    """Return the plan of one model for data sets of so many ``questions``.

    Answers are generated once for all ``extractors``; passes are computed for each of them. ``answers_apart``: by jobs
    of their own. ``interventions``: other cuts, by jobs that load the model once more.
    """
    prefix = settings.base_prefix_tokens if entry.kind == "base" else settings.chat_prefix_tokens
    tokens = Tokens(prefix, settings.question_tokens, settings.answer_tokens)
    one = cost(shape, sum(questions), test, tokens, entry.dtype, sites, positions, answers_apart)
    tested = [round(number * test) for number in questions] * extractors
    cuts = cut_costs(shape, tested, tokens, entry.dtype, interventions) if interventions else []
    total = Cost(
        answers=one.answers,
        clean=one.clean * extractors,
        knockout=one.knockout * extractors,
        one_pass_per_layer=one.one_pass_per_layer * extractors,
        activations=one.activations * extractors + sum(cut.bytes for cut in cuts),
        weights=one.weights,
        interventions=sum(cut.flops for cut in cuts),
    )
    loads = len(questions) * shards * (extractors * (1 + bool(interventions)) + answers_apart)
    found = _timed(
        name, entry, shape, total, sum(questions) * generation_flops(shape, tokens)[1], loads, settings, tokens
    )
    reads = not (answers_apart or entry.thinking)
    held = _rows(entry, tokens) * (entry.max_new_tokens + 1) * sites if reads else 0
    if interventions and interventions.restarted:
        held = max(held, entry.batch_tokens)  # what every layer gave in the clean pass, for windows and heads
    return replace(found, cuts=cuts, read_bytes=held * shape.layers * shape.hidden * BYTES[entry.dtype])


def _rows(entry: ModelEntry, tokens: Tokens) -> int:
    """Return how many questions are answered in one batch."""
    return max(1, entry.batch_tokens // (tokens.question + entry.max_new_tokens))


def asked(name: str, entry: ModelEntry, shape: Shape, requests: int, loads: int, settings: PlanSettings) -> Planned:
    """Return the plan of the language model that finds exact tokens or judges, for so many ``requests``."""
    tokens = Tokens(settings.request_prefix_tokens, settings.request_tokens, settings.reply_tokens)
    prefill, decode = generation_flops(shape, tokens)
    total = Cost(
        answers=requests * (prefill + decode),
        clean=0,
        knockout=0,
        one_pass_per_layer=0,
        activations=0,
        weights=shape.parameters * BYTES[entry.dtype],
    )
    return _timed(name, entry, shape, total, requests * decode, loads, settings, tokens)


def _timed(
    name: str,
    entry: ModelEntry,
    shape: Shape,
    total: Cost,
    decode: float,
    loads: int,
    settings: PlanSettings,
    tokens: Tokens,
) -> Planned:
    """Return the plan of what costs ``total``, of which ``decode`` FLOPs are generated token by token."""
    seconds_loading = loads * total.weights / (settings.load_gigabytes_per_second * 1e9)
    hours, loading = {}, {}
    for device, facts in settings.devices.items():
        # The devices of a device map work one after another.
        peak = facts.teraflops * 1e12 * (1 if entry.engine == "device_map" else max(1, entry.gpus))
        computing = (total.total - decode) / (peak * settings.utilisation)
        computing += decode / (peak * settings.decode_utilisation)
        hours[device] = (computing + seconds_loading) / 3600
        loading[device] = seconds_loading / (computing + seconds_loading)
    size = BYTES[entry.dtype]
    positions = _rows(entry, tokens) * (tokens.prefix + tokens.question + entry.max_new_tokens)
    cached = positions * shape.layers * 2 * shape.kv_heads * shape.head_dim * size
    return Planned(name, shape, total, loads, entry.gpus, entry.engine, cached, hours, loading)


def as_json(found: Sequence[Planned], settings: PlanSettings) -> dict[str, Any]:
    """Return the plan with what it assumes."""
    return {"assumed": settings.model_dump(mode="json"), "models": [asdict(item) for item in found]}


def report(
    found: Sequence[Planned],
    unknown: Mapping[str, str],
    settings: PlanSettings,
    questions: Mapping[str, int],
    names: Mapping[str, str],
    requests: int = 0,
) -> str:
    """Return the plan as Markdown.

    ``unknown``: models whose cost is not known, with the reason; ``requests``: to a language model that finds exact
    tokens or judges.
    """

    def called(item: Planned) -> str:
        return names.get(item.model, item.model)

    devices = list(settings.devices)
    total = [sum(item.hours[device] * max(1, item.gpus) for item in found) for device in devices]
    gpu_hours = [
        [called(item), str(item.gpus), *(f"{item.hours[device] * max(1, item.gpus):,.2f}" for device in devices)]
        for item in found
    ]
    gpu_hours.append(["all", "", *(f"{hours:,.2f}" for hours in total)])
    parts = [
        "# Plan\n",
        f"{sum(questions.values()):,} questions: "
        + ", ".join(f"{name} {number:,}" for name, number in questions.items())
        + ".\n",
        "## Work\n",
        "Forward passes in petaFLOPs (10¹⁵). *One pass per layer* is what the knockout passes would have been without "
        "the argument that two passes are enough, and without a shared prefix.\n",
        markdown.table(
            ["model", "parameters", "loads", "answers", "clean", "knockout", "one pass per layer", "times as much"],
            [
                [called(item), f"{item.shape.parameters / 1e9:.1f} B", item.loads,
                 *(f"{value / 1e15:,.4g}" for value in
                   (item.cost.answers, item.cost.clean, item.cost.knockout, item.cost.one_pass_per_layer)),
                 f"{item.cost.one_pass_per_layer / item.cost.knockout:.0f}" if item.cost.knockout else markdown.NOTHING]
                for item in found
            ],
        ),
        *_other_cuts(found, settings, names),
        "## GPU hours\n",
        "Wall time times GPUs, loading included, all data sets together.\n",
        markdown.table(
            ["model", "GPUs", *devices],
            gpu_hours,
        ),
        "## Memory and disk\n",
        "Weights, cached keys and values and the activations of a batch for each GPU; on disk the activations of all "
        "passes, in chunks and in shards.\n",
        markdown.table(
            ["model", "weights GB", "GB per GPU", *(f"fits {device}" for device in devices), "disk GB"],
            [
                [called(item), f"{item.cost.weights / 1e9:.1f}",
                 f"{item.bytes_per_device() / 1e9:.1f}",
                 *("yes" if item.bytes_per_device() < 0.9e9 * facts.gigabytes else "no"
                   for facts in settings.devices.values()),
                 f"{item.cost.activations / 1e9:.2f}"]
                for item in found
            ]
            + [["all", markdown.NOTHING, markdown.NOTHING, *(markdown.NOTHING for _ in devices),
                f"{sum(item.cost.activations for item in found) / 1e9:.2f}"]],
        ),
        "## Assumed\n",
        f"{settings.utilisation:.0%} of the peak for whole prompts and {settings.decode_utilisation:.0%} for answers, "
        f"token by token; weights are loaded at {settings.load_gigabytes_per_second:g} GB per second; "
        f"{settings.question_tokens} tokens for a question, {settings.answer_tokens} for an answer, "
        f"{settings.base_prefix_tokens} for few-shot examples and {settings.chat_prefix_tokens} for a chat template. "
        "These are stated, not measured; the key `plan` changes them.\n",
    ]  # fmt: skip
    if requests:
        parts.append(
            f"The language model that finds exact tokens or judges gets at most {requests:,} requests, of all "
            f"models together, each of {settings.request_tokens} tokens after {settings.request_prefix_tokens} of "
            f"instruction and examples, and replies in {settings.reply_tokens}; second requests after replies that "
            "cannot be used are not counted, and the work of a server is its own.\n"
        )
    parts += [f"{model}: not in the plan. {reason}\n" for model, reason in unknown.items()]
    parts += [f"**Warning.** {line}\n" for line in warnings(found, names)]
    return "\n".join(parts)


def _other_cuts(found: Sequence[Planned], settings: PlanSettings, names: Mapping[str, str]) -> list[str]:
    """Return the section on other cuts, nothing where there are none."""
    if not any(item.cuts for item in found):
        return []

    def gpu_hours(item: Planned, flops: float) -> list[str]:
        # Devices that share the work take as much together; of a device map the others wait.
        waiting = max(1, item.gpus) if item.engine == "device_map" else 1
        peaks = [device.teraflops * 1e12 * settings.utilisation for device in settings.devices.values()]
        return [f"{waiting * flops / peak / 3600:,.2f}" for peak in peaks]

    rows: list[list[str | int]] = [
        [names.get(item.model, item.model), cut.name, cut.samples, f"{cut.passes:.1f}", f"{cut.flops / 1e15:,.4g}",
         *gpu_hours(item, cut.flops), f"{cut.bytes / 1e9:.2f}"]
        for item in found
        for cut in item.cuts
    ]  # fmt: skip
    return [
        "## Other cuts\n",
        "At most, with k* at the last layer and whole prompts for random tokens. *Passes* are passes through all "
        "layers for each test sample. GPU hours without loading: the jobs load each model once more for each data set, "
        "shard and extractor.\n",
        markdown.table(
            ["model", "intervention", "test samples", "passes", "petaFLOPs", *settings.devices, "disk GB"], rows
        ),
    ]


def warnings(found: Sequence[Planned], names: Mapping[str, str]) -> list[str]:
    """Return what is worth a warning: models whose loading takes more than a tenth of the time on every device."""
    return [
        f"{names.get(item.model, item.model)}: loading takes {min(item.loading.values()):.0%} or more of the time; "
        "give it fewer shards, or more questions"
        for item in found
        if min(item.loading.values()) > _LOADING
    ]
