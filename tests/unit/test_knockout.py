"""Knockout against an independent reference, and what must not change."""

import plain
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache

import tiny
from deltap.models.backend import PLAIN, watched
from deltap.models.engine import Engine
from deltap.models.knockout import Cut, Edges
from deltap.models.prefix import beginning, growing

SITES = ("attn", "mlp", "resid")
SEQUENCES = [
    [0, 40, 51, 62, 73, 84, 95, 106, 117, 128, 139, 150],
    [0, 41, 52, 63, 74, 85, 96, 107, 118],
    [0, 42, 53, 64, 75, 86, 97, 108, 119, 130, 141, 152, 163, 174, 185],
]
IN_ONE_PIECE = [[3, 4, 5], [2, 3], [6]]
IN_SEVERAL_PIECES = [[2, 5, 6], [1, 4], [3, 4, 8, 10]]


@pytest.fixture(params=tiny.FAMILIES)
def model(request):
    return tiny.model(request.param)


def every_position(sequences):
    """Positions read in each sequence; as many in each, so the shortest decides."""
    return [list(range(min(map(len, sequences)))) for _ in sequences]


def last_positions(sequences):
    return [[len(sequence) - 3, len(sequence) - 1] for sequence in sequences]


@pytest.mark.parametrize("cut", [IN_ONE_PIECE, IN_SEVERAL_PIECES], ids=["one piece", "several pieces"])
def test_one_knockout_pass_equals_one_plain_pass_for_each_layer(model, cut):
    positions = last_positions(SEQUENCES)
    found = Engine(model, 10_000).forward(SEQUENCES, positions, SITES, cut)
    for index, sequence in enumerate(SEQUENCES):
        for k in range(model.config.num_hidden_layers):
            reference = plain.activations(model, sequence, plain.knockout(cut[index], last_layer=k))
            for site in SITES:
                expected = reference[site][k][positions[index]]
                torch.testing.assert_close(found[site][k, index], expected, atol=1e-5, rtol=1e-5)


def test_clean_pass_equals_plain_algebra(model):
    positions = every_position(SEQUENCES)
    found = Engine(model, 10_000).forward(SEQUENCES, positions, SITES)
    for index, sequence in enumerate(SEQUENCES):
        reference = plain.activations(model, sequence)
        for site in SITES:
            expected = torch.stack(reference[site])[:, positions[index]]
            torch.testing.assert_close(found[site][:, index], expected, atol=1e-5, rtol=1e-5)


def test_cutting_changes_later_positions(model):
    engine = Engine(model, 10_000)
    positions = last_positions(SEQUENCES)
    clean, knockout = (
        engine.forward(SEQUENCES, positions, SITES),
        engine.forward(SEQUENCES, positions, SITES, IN_SEVERAL_PIECES),
    )
    assert ((clean["resid"] - knockout["resid"])[-1].abs().amax(dim=(-1, -2)) > 1e-3).all()


def test_a_mask_that_cuts_nothing_equals_the_model_without_a_mask(model):
    engine = Engine(model, 10_000)
    positions = every_position(SEQUENCES)
    clean = engine.forward(SEQUENCES, positions, SITES)
    nothing = engine.forward(SEQUENCES, positions, SITES, [[], [], []])
    for site in SITES:
        torch.testing.assert_close(clean[site], nothing[site], atol=1e-6, rtol=0)


def test_positions_before_the_cut_do_not_change(model):
    engine = Engine(model, 10_000)
    before = [list(range(min(cut))) for cut in IN_ONE_PIECE]
    for sequence, positions, cut in zip(SEQUENCES, before, IN_ONE_PIECE, strict=True):
        clean = engine.forward([sequence], [positions], SITES)
        knockout = engine.forward([sequence], [positions], SITES, [cut])
        for site in SITES:
            torch.testing.assert_close(clean[site], knockout[site], atol=1e-6, rtol=0)


FIRST_ANSWER_TOKENS = [8, 6, 11]
CUTS = {
    "a range of layers": (
        Cut(IN_SEVERAL_PIECES, first_layer=1, last_layer=2),
        lambda index: lambda layer, head, i, j: 1 <= layer <= 2 and edge(IN_SEVERAL_PIECES[index], i, j),
    ),
    "answer queries only": (
        Cut(IN_SEVERAL_PIECES, first_query=FIRST_ANSWER_TOKENS),
        lambda index: (
            lambda layer, head, i, j: i >= FIRST_ANSWER_TOKENS[index] and edge(IN_SEVERAL_PIECES[index], i, j)
        ),
    ),
    "one head of one layer": (
        Cut(IN_SEVERAL_PIECES, first_layer=1, last_layer=1, head=3),
        lambda index: lambda layer, head, i, j: (layer, head) == (1, 3) and edge(IN_SEVERAL_PIECES[index], i, j),
    ),
}


def edge(cut, query, key):
    return key in cut and query not in cut


@pytest.mark.parametrize("prefix", [0, 3, 8], ids=lambda tokens: f"prefix of {tokens}")
@pytest.mark.parametrize("name", CUTS)
def test_other_cuts_equal_plain_algebra(model, name, prefix):
    cut, severed = CUTS[name]
    engine = Engine(model, 10_000)
    engine.share_prefix(SEQUENCES[0][:prefix])
    positions = last_positions(SEQUENCES)
    clean, found = engine.passes(SEQUENCES, positions, SITES, [None, cut])
    for index, sequence in enumerate(SEQUENCES):
        reference = plain.activations(model, sequence, severed(index))
        untouched = plain.activations(model, sequence)
        for site in SITES:
            expected = torch.stack(reference[site])[:, positions[index]]
            torch.testing.assert_close(found[site][:, index], expected, atol=1e-5, rtol=1e-5)
            without = torch.stack(untouched[site])[:, positions[index]]
            torch.testing.assert_close(clean[site][:, index], without, atol=1e-5, rtol=1e-5)
    assert ((found["resid"] - clean["resid"])[-1].abs().amax(dim=(-1, -2)) > 1e-3).all()


def test_several_cuts_in_the_same_batches_equal_each_by_itself(model):
    engine = Engine(model, 10_000)
    positions = last_positions(SEQUENCES)
    cuts = [cut for cut, _ in CUTS.values()]
    done: list[int] = []
    together = engine.passes(SEQUENCES, positions, SITES, cuts, done.append)
    assert sum(done) == len(cuts) * len(SEQUENCES)
    for cut, found in zip(cuts, together, strict=True):
        (alone,) = engine.passes(SEQUENCES, positions, SITES, [cut])
        for site in SITES:
            torch.testing.assert_close(found[site], alone[site], atol=1e-5, rtol=1e-5)
    assert engine.passes(SEQUENCES, positions, SITES, []) == []


@pytest.mark.parametrize("budget", [1, 20, 10_000])
def test_batches_and_padding_change_nothing(model, budget):
    positions = last_positions(SEQUENCES)
    alone = [
        Engine(model, 1).forward([s], [p], SITES, [c])
        for s, p, c in zip(SEQUENCES, positions, IN_ONE_PIECE, strict=True)
    ]
    together = Engine(model, budget).forward(SEQUENCES, positions, SITES, IN_ONE_PIECE)
    for site in SITES:
        expected = torch.cat([one[site] for one in alone], dim=1)
        torch.testing.assert_close(together[site], expected, atol=1e-5, rtol=1e-5)


def test_the_shared_prefix_changes_nothing(model):
    prefix = [0, 40, 51, 62, 73, 84, 95]
    sequences = [prefix + sequence[1:] for sequence in SEQUENCES]
    cut = [[position + 6 for position in piece] for piece in IN_SEVERAL_PIECES]
    positions = last_positions(sequences)
    engine = Engine(model, 10_000)
    expected = engine.forward(sequences, positions, SITES, cut)
    expected_clean = engine.forward(sequences, positions, SITES)
    engine.share_prefix(prefix)
    for found, wanted in (
        (engine.forward(sequences, positions, SITES, cut), expected),
        (engine.forward(sequences, positions, SITES), expected_clean),
    ):
        for site in SITES:
            torch.testing.assert_close(found[site], wanted[site], atol=1e-5, rtol=1e-5)


def test_a_cut_inside_the_shared_prefix_is_computed_without_it(model):
    engine = Engine(model, 10_000)
    positions = last_positions(SEQUENCES)
    expected = engine.forward(SEQUENCES, positions, SITES, IN_ONE_PIECE)
    engine.share_prefix(SEQUENCES[0][:5])
    found = engine.forward(SEQUENCES, positions, SITES, IN_ONE_PIECE)
    torch.testing.assert_close(found["resid"], expected["resid"], atol=1e-5, rtol=1e-5)


def test_what_stands_before_the_cut_is_computed_once_for_both_passes(model):
    computed: list[torch.Size] = []
    model.model.embed_tokens.register_forward_hook(
        lambda module, arguments, output: computed.append(arguments[0].shape)
    )
    Engine(model, 10_000).clean_and_knockout(SEQUENCES, last_positions(SEQUENCES), SITES, IN_ONE_PIECE)
    # Three sequences of at most 15 tokens, the earliest cut at position 2.
    assert computed == [(3, 2), (3, 13), (3, 13)]


def test_a_pass_leaves_the_beginning_as_it_is(model):
    cache = DynamicCache(config=model.config)
    model.model(torch.tensor([SEQUENCES[0][:6]]), cache=cache)
    before = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]
    start = beginning(cache, 2)
    model.model(torch.tensor([[7, 8], [9, 10]]), cache=start)
    model.model(torch.tensor([[7, 8], [9, 10]]), cache=growing(cache, 2))
    for layer, (keys, values) in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)
    assert [layer.keys.shape for layer in start.layers] == [(2, *keys.shape[1:]) for keys, _ in before]


class Full(torch.nn.Module):
    """A module for which memory runs out, by a real refusal of the allocator, with more than so many tokens."""

    def __init__(self, module, tokens):
        super().__init__()
        self.module, self.tokens = module, tokens

    def forward(self, states):
        if states.shape[0] * states.shape[1] > self.tokens:
            torch.empty(2**50, dtype=torch.uint8)
        return self.module(states)


def test_batches_shrink_when_memory_runs_out_and_the_log_says_so(model, caplog):
    sequences, cuts = SEQUENCES * 3, IN_ONE_PIECE * 3
    positions = last_positions(sequences)
    prompts = [sequence[:8] for sequence in sequences]
    engine = Engine(model, 1000)
    expected = engine.clean_and_knockout(sequences, positions, SITES, cuts)
    answers = engine.generate(prompts, {1}, 4)
    for layer in model.model.layers:
        layer.mlp = Full(layer.mlp, 40)
    done: list[int] = []
    for engine in (Engine(model, 1000), Engine(model, 60)):
        found = engine.clean_and_knockout(sequences, positions, ("attn", "resid"), cuts, done.append)
        for one, other in zip(found, expected, strict=True):
            for site in one:
                torch.testing.assert_close(one[site], other[site], atol=1e-5, rtol=1e-5)
        assert Engine(model, 1000).generate(prompts, {1}, 4) == answers
    assert sum(done) == 2 * 2 * len(sequences)
    assert engine.batch_tokens == 60  # with which the next call begins again
    assert "out of memory with a batch of 135 tokens; going on with 67" in caplog.text


def test_the_log_says_by_which_kernel_attention_is_computed(model, caplog):
    caplog.set_level("INFO", logger="deltap")
    engine = Engine(model, 1000)
    for _ in range(2):
        engine.clean_and_knockout(SEQUENCES, last_positions(SEQUENCES), SITES, IN_ONE_PIECE)
    said = [line for line in caplog.messages if line.startswith("attention of")]
    assert "attention of knockout on cpu: flash attention" in said
    assert len(said) == len(set(said))


@pytest.mark.parametrize("inference", [False, True])
def test_plain_algebra_is_told_from_a_kernel(inference):
    states = torch.randn(1, 2, 4, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode(inference):
        result, kernel = watched(lambda: attend(states, states, states, is_causal=True))
        assert kernel == "flash attention"
        with sdpa_kernel(SDPBackend.MATH):
            plain_result, kernel = watched(lambda: attend(states, states, states, is_causal=True))
        assert kernel == PLAIN
    torch.testing.assert_close(result, plain_result)


def test_position_0_is_never_cut():
    with pytest.raises(ValueError, match="position 0"):
        Edges(torch.tensor([[True, False, False]]))


def test_edges_of_a_cut():
    allowed = Edges(torch.tensor([[False, True, True, False, False]])).allowed(5, 5)[0, 0]
    cut = {(i, j) for i in range(5) for j in range(5) if not allowed[i, j]}
    # Queries outside of E_Q do not see it; queries inside see all of it. Causality is the model's own.
    assert {(i, j) for i, j in cut if i > j} == {(3, 1), (3, 2), (4, 1), (4, 2)}


def test_generation_in_batches_and_with_a_prefix_equals_one_by_one(model):
    prompts = [sequence[:8] for sequence in SEQUENCES] + [SEQUENCES[2][:11]]
    alone = [Engine(model, 1).generate([prompt], {1}, 6)[0] for prompt in prompts]
    engine = Engine(model, 10_000)
    assert engine.generate(prompts, {1}, 6) == alone
    engine.share_prefix([0, 40, 51])
    assert engine.generate(prompts, {1}, 6) == alone


def test_generation_equals_repeated_argmax(model):
    prompt = SEQUENCES[0]
    expected: list[int] = []
    for _ in range(6):
        with torch.no_grad():
            expected.append(int(model(torch.tensor([prompt + expected])).logits[0, -1].argmax()))
    assert Engine(model, 10_000).generate([prompt], {399}, 6)[0] == expected


def test_generation_stops_before_the_end_token(model):
    prompt = SEQUENCES[0]
    free = Engine(model, 10_000).generate([prompt], {399}, 6)[0]
    end = free[3]
    assert Engine(model, 10_000).generate([prompt], {end, 399}, 6)[0] == free[: free.index(end)]


def test_hooks_are_removed(model):
    engine = Engine(model, 10_000)
    engine.forward(SEQUENCES, last_positions(SEQUENCES), SITES)
    with pytest.raises(IndexError):
        engine.forward([SEQUENCES[0]], [[99]], SITES)
    assert not any(module._forward_hooks for module in model.modules())
