"""What a run costs, worked out before it starts: tokens, floating-point operations, hours, disk and memory.

Everything follows from the shape of a model (its ``config.json``) and a few assumptions that are stated with the
result. FLOPs count a multiplication and an addition as two. Per token and layer they are those of the projections of
attention and MLP, and of queries with keys and weights with values; normalisation, softmax and rotary embedding, which
grow with the hidden size and not with its square, are left out. Source: Kaplan et al. 2020, section 2.1, with grouped
queries and gated MLPs added.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltap.errors import DeltapError

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder that decide what a forward pass costs."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool = False
    """The language-model head is the embedding."""

    @property
    def parameters_per_layer(self) -> int:
        """Weights of one layer's projections."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Weights of the whole model, without its norms."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * self.parameters_per_layer + embeddings

    def forward_flops(self, tokens: int, before: int = 0, head: int = 0) -> float:
        """Return the FLOPs of ``tokens`` new tokens after ``before`` cached ones.

        ``head``: for how many of them the language-model head is computed. As attention kernels do, every new token is
        taken to be compared with all tokens, the masked ones included.
        """
        projections = 2 * self.parameters_per_layer * tokens
        attention = 4 * self.heads * self.head_dim * tokens * (before + tokens)
        return self.layers * (projections + attention) + head * 2 * self.hidden * self.vocabulary


def shape_of(config: Mapping[str, Any], where: str) -> Shape:
    """Return the shape in a ``config.json``; raise DeltapError that names the missing key and ``where``."""
    text = {**config, **config.get("text_config", {})}
    missing = [
        name
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
        if not isinstance(text.get(name), int)
    ]
    if missing:
        raise DeltapError(f"{where}: no {', '.join(missing)}, so that the model's cost is not known")
    heads = text["num_attention_heads"]
    return Shape(
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
        intermediate=text["intermediate_size"],
        vocabulary=text["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def read_shape(directory: Path) -> Shape:
    """Return the shape of the model in ``directory``."""
    path = directory / "config.json"
    try:
        return shape_of(json.loads(path.read_text(encoding="utf-8")), str(path))
    except (OSError, ValueError) as error:
        raise DeltapError(f"{path}: cannot be read ({error})") from None


@dataclass(frozen=True)
class Tokens:
    """The tokens of a typical question, assumed or measured."""

    prefix: int
    """Of the prompt, the same for every question: few-shot examples, template."""
    question: int
    """Of the prompt, the question's own."""
    answer: int

    @property
    def own(self) -> int:
        """Tokens that every pass computes."""
        return self.question + self.answer


@dataclass(frozen=True)
class Cost:
    """What one model's answers to a number of questions cost."""

    answers: float
    """FLOPs, as the next ones."""
    clean: float
    knockout: float
    one_pass_per_layer: float
    """What the knockout would cost by one full pass per layer and test sample, without a shared prefix."""
    activations: int
    """Bytes on disk, in chunks and in shards, for both passes."""
    weights: int
    """Bytes."""
    interventions: float = 0
    """Of other cuts, where controls are configured."""

    @property
    def total(self) -> float:
        """FLOPs of answers, both passes and other cuts."""
        return self.answers + self.clean + self.knockout + self.interventions


def generation_flops(shape: Shape, tokens: Tokens) -> tuple[float, float]:
    """Return the FLOPs of an answer's prompt, whose prefix is cached, and of the answer, token by token."""
    before = tokens.prefix + tokens.question
    prefill = shape.forward_flops(tokens.question, tokens.prefix, head=1)
    return prefill, sum(shape.forward_flops(1, before + done, head=1) for done in range(tokens.answer))


def cost(
    shape: Shape,
    questions: int,
    test: float,
    tokens: Tokens,
    dtype: str,
    sites: int,
    positions: int,
    answers_apart: bool = False,
) -> Cost:
    """Return the cost of ``questions``, of which the share ``test`` is knocked out.

    The others need no pass of their own, unless answers are generated by another job (``answers_apart``).
    """
    tested = round(questions * test)
    one_pass = shape.forward_flops(tokens.own, tokens.prefix)
    whole = shape.forward_flops(tokens.prefix + tokens.own)
    size = BYTES[dtype]
    return Cost(
        answers=questions * sum(generation_flops(shape, tokens)),
        clean=(questions if answers_apart else tested) * one_pass,
        knockout=tested * one_pass,
        one_pass_per_layer=tested * shape.layers * whole,
        activations=2 * (questions + tested) * shape.layers * shape.hidden * sites * positions * size,
        weights=shape.parameters * size,
    )
