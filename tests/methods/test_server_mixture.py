"""Gates, losses and weights of Fed-MoE's server, on numbers that can be worked out by hand."""

import math

import pytest
import torch

from fedlib.methods.parts import relevance as of_clients
from fedlib.methods.parts import server_mixture as mixture

LOGITS = (2.0, 1.0, 0.0, -1.0, 0.5)
NOISY = (1.75, 1.45, 0.05, -1.0, 0.6)
QUERIES = [[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]]  # of four examples, by three experts
CONFIDENCE = [[0.9, 0.2, 0.4, 0.7], [0.1, 0.6, 0.8, 0.3]]  # of two clients in these
RELEVANCE = [[0.9 + 0.7, 0.1 + 0.3], [0.2 + 0.4, 0.6 + 0.8], [0, 0]]


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def softmax(values) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def assert_near(found, expected, **tolerance):
    # Float64 sums of a few numbers.
    options = {"rtol": 1e-12, "atol": 1e-12} | tolerance
    torch.testing.assert_close(found, tensor(expected), **options)


# -- gates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["renorm", "straight_through"])
def test_kept_probabilities_get_a_second_softmax(value):
    p = softmax(LOGITS)
    found = mixture.top_k_gates(tensor([LOGITS]), 2, value)
    assert_near(found, [[*softmax(p[:2]), 0, 0, 0]])
    assert_near(found[0, :2], [0.588047, 0.411953], atol=5e-7)  # six digits
    assert mixture.top_k_gates(tensor([LOGITS]), 1, value).tolist() == [[1, 0, 0, 0, 0]]


@pytest.mark.parametrize("k", [1, 2])
def test_a_straight_through_gate_has_the_gradient_of_the_probabilities_it_keeps(k):
    logits = tensor([LOGITS]).requires_grad_()
    weights = torch.arange(1.0, 6, dtype=torch.float64)
    gates = mixture.top_k_gates(logits, k, "straight_through")
    (found,) = torch.autograd.grad((weights * gates).sum(), logits)
    # d g_i / d h = r_i (e_i - p), of the kept i.
    p, kept = softmax(LOGITS), softmax(softmax(LOGITS)[:k])
    expected = [
        sum(w * r * ((i == j) - p[j]) for i, (w, r) in enumerate(zip((1, 2), kept, strict=False)))
        for j in range(5)
    ]
    assert_near(found, [expected])


def test_a_renormalised_gate_of_one_expert_has_no_gradient():
    logits = tensor([LOGITS]).requires_grad_()
    mixture.top_k_gates(logits, 1, "renorm")[0, 0].backward()
    assert not logits.grad.any()


# -- outputs ---------------------------------------------------------------------------------


def test_alpha_weighs_the_routed_experts_against_one_main_expert():
    gates = tensor([[0.25, 0.75]])
    routed = tensor([[[0.8, 0.2], [0.4, 0.6]]])
    main = tensor([[[0.1, 0.9], [0.3, 0.7], [0.5, 0.5]]])
    mixed = [0.25 * 0.8 + 0.75 * 0.4, 0.25 * 0.2 + 0.75 * 0.6]
    found = [mixture.combine(gates, routed, main[:, :r], tensor(0.9)) for r in range(4)]
    assert_near(found[0], [mixed])
    assert_near(found[1], [[0.9 * mixed[0] + 0.1 * 0.1, 0.9 * mixed[1] + 0.1 * 0.9]])
    assert_near(found[2], [[mixed[0] + 0.5 * 0.4, mixed[1] + 0.5 * 1.6]])
    assert_near(found[3], [[mixed[0] + 0.5 * 0.9, mixed[1] + 0.5 * 2.1]])


def test_mixed_probabilities_and_mixed_logits_become_log_probabilities():
    mixed = tensor([[0.5, 1.5]])
    assert_near(mixture.combined_log_probs(mixed, "probabilities").exp(), [[0.25, 0.75]])
    assert_near(mixture.combined_log_probs(mixed, "logits").exp(), [softmax([0.5, 1.5])])
    # alpha beyond 1 can make a mixed probability negative: it is no number's logarithm.
    beyond = mixture.combined_log_probs(tensor([[-0.1, 1.1]]), "probabilities")
    assert beyond[0, 1] == 0 and beyond[0, 0] < -700 and beyond.isfinite().all()


# -- losses ----------------------------------------------------------------------------------


def test_the_entropy_of_a_gate_that_is_sure_beyond_precision_has_a_gradient():
    logits = torch.tensor([[0.0, 200.0, 199.0]], requires_grad=True)  # float32: exp(-200) is 0
    entropy = mixture.entropy_per_example(logits.softmax(-1))
    entropy.backward()
    p = torch.tensor([199.0, 200.0]).double().softmax(0)
    expected = -(p * p.log()).sum()
    assert entropy.item() == pytest.approx(expected.item(), rel=1e-5)
    # dH/dh_i = -p_i (log p_i + H), 0 where p_i is.
    torch.testing.assert_close(
        logits.grad[0, [2, 1]].double(), -p * (p.log() + expected), rtol=1e-4, atol=1e-7
    )
    assert logits.grad[0, 0] == 0


@pytest.mark.parametrize(
    ("kind", "printed"),
    [
        ("canonical", (0.864334, 0.066807, 0.000233, 0.000000, 0.006210)),
        ("code_femnist", (0.999606, 0.912601, 0.192689, 0.002065, 0.639434)),
        ("code_cifar10", (0.999606, 0.912601, 0.192689, 0.002065, 0.639434)),
    ],
)
def test_the_load_of_experts_is_how_probably_they_are_kept(kind, printed):
    clean, loud = tensor([LOGITS]), tensor([NOISY])
    found = mixture.smooth_load(clean, loud, torch.full_like(clean, 0.5), 1, kind)
    assert_near(found, printed, atol=5e-7)  # six digits


# -- relevance -------------------------------------------------------------------------------


def test_relevance_is_confidence_where_the_gate_trusts_the_expert():
    gates, confidence = tensor(QUERIES), tensor(CONFIDENCE)
    found = of_clients.relevance(gates, confidence, "sum")
    assert_near(found, RELEVANCE)
    assert_near(4 * of_clients.relevance(gates, confidence, "mean"), RELEVANCE)
    weights = found.softmax(1)
    assert_near(weights, [softmax(row) for row in RELEVANCE])
    printed = [[0.768525, 0.231475], [0.310025, 0.689974], [0.5, 0.5]]
    assert_near(weights, printed, atol=1.1e-6)  # six digits, one of them rounded down


@pytest.mark.parametrize(
    ("kind", "alpha", "printed"),  # by expert and client
    [
        ("code", 0.5, "0.263702 0.215028 0.215612 0.261526 0.204509 0.207101 0.316177 0.316346"),
        ("paper", 0.5, "0.357567 0.207585 0.216875 0.342249 0.160665 0.169956 0.264892 0.280210"),
        ("code", 0.9, "0.338784 0.234889 0.235792 0.334118 0.214388 0.219533 0.211037 0.211460"),
        ("paper", 0.9, "0.524840 0.202908 0.213384 0.499074 0.124349 0.141564 0.137427 0.156453"),
        ("convex", 0.9, "0.573330 0.205077 0.210916 0.557456 0.115753 0.137467 0.1 0.1"),
    ],
)
def test_clients_take_from_experts_by_three_rules(kind, alpha, printed):
    found = of_clients.sync_weights(tensor(RELEVANCE), tensor(alpha), kind, main=True)
    assert_near(found.flatten(), [float(x) for x in printed.split()], atol=1.1e-6)  # six digits
    assert_near(found.sum(0), [1, 1])


@pytest.mark.parametrize("kind", of_clients.SYNC_WEIGHTS)
def test_without_a_main_expert_alpha_plays_no_part(kind):
    columns = [softmax(column) for column in zip(*RELEVANCE, strict=True)]
    if kind == "code":
        columns = list(map(softmax, columns))
    found = of_clients.sync_weights(tensor(RELEVANCE), tensor(0.3), kind, main=False)
    assert_near(found.T, columns)
