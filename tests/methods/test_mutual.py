"""FML, FedKD and FedAPEN: a private and a shared model that teach each other.

By hand against loops of `nn.Module` and `torch.optim` that share nothing with the engine but the
order of the batches, which is drawn; clients have one of two architectures.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from reference import (
    Reference,
    assert_params,
    assert_predicts,
    average,
    batches,
    descend,
    label_loss,
    module_of,
    says,
    weighed,
)
from support import assert_close, cohort_of, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy, kl_div, mse_loss
from zoo import SIZES, deep

from fedlib import methods, streams, tree
from fedlib.engine.experts import expert_seed
from fedlib.methods.fedkd import compress, recover
from fedlib.methods.parts import holdout
from fedlib.run.evaluate import prepare

SEEN = range(4)
ROUNDS = 3
# New optimisers in every local training; gradients clipped, of each module by itself.
SOLVER = sgd(epochs=2, keeps="round", clip_norm=0.5)
PARAMS = {
    "fml": {"alpha": 0.3, "beta": 0.8},
    # Low enough that matrices of this size are cheaper as factors.
    "fedkd": {"horizon": ROUNDS, "first_energy": 0.5, "last_energy": 0.8},
    # No hold-out of this size leaves one example alone in a batch; at this rate lam moves.
    "fedapen": {"holdout": 0.4, "lam_lr": 0.05, "lam_epochs": 2},
}
every_method = pytest.mark.parametrize("name", PARAMS)
SMALL = tiny_task(hidden=30)
LARGE = (tiny_task(hidden=9), deep)  # which has batch normalisation


def make(name, large=LARGE, local=SOLVER, task=SMALL, **params):
    return methods.load(name)(task=task, local=local, large=large, **PARAMS[name] | params)


def start():
    """The small model before the first round of seed 0."""
    return SMALL.init(expert_seed(0, 1))


def run(method, federation, rounds=ROUNDS, ids=None, state=None, first=0):
    """(state, cohort of the last round) after some rounds with `ids`, or all that may train."""
    state = method.init(federation.num_clients, 0) if state is None else state
    for number in range(first, first + rounds):
        cohort = zoo.cohort(method, federation, ids, executor="batched", round=number)
        state = method.round(state, cohort)
    return state, cohort


# -- by hand ------------------------------------------------------------------------------


class Hand(Reference):
    """Clients with modules: `own` of each, and the server's `small`."""

    def __init__(self, federation):
        super().__init__(federation, solver=SOLVER)
        self.own = {c: module_of(LARGE[c % 2], LARGE[c % 2].init(0)) for c in SEEN}
        self.small = start()

    def train(self, examples, number, client, modules, losses):
        """Each module descends its own part of the sum of losses."""
        solvers = self.solvers_of(*(module.train() for module in modules))
        steps = batches(*examples, SOLVER, number, "fit", client)
        descend(solvers, steps, lambda b: sum(losses(*modules, b.x, b.y)), SOLVER.clip_norm)

    def assert_own(self, method, state):
        """The method's clients have the same models and predict the same with them."""
        for c, own in self.own.items():
            assert_params(state.models["large"][c], own.state_dict())
        assert_predicts(method, state, self, lambda c, x: says(self.own[c], x))


@weighed
def test_fml_by_hand(weights):
    federation = toy_federation(SIZES)
    hand = Hand(federation)

    def losses(own, small, x, y):
        a, b = own(x), small(x)
        # KL(target || ours): torch has the target second.
        from_small = kl_div(a.log_softmax(-1), b.softmax(-1).detach(), reduction="batchmean")
        from_own = kl_div(b.log_softmax(-1), a.softmax(-1).detach(), reduction="batchmean")
        yield 0.3 * label_loss(a, y, weights) + 0.7 * from_small
        yield 0.8 * label_loss(b, y, weights) + 0.2 * from_own

    for number in range(ROUNDS):
        returned = {}
        for c, own in hand.own.items():
            small = module_of(SMALL, hand.small)
            hand.train(hand.shard(c), number, c, (own, small), losses)
            returned[c] = small
        hand.small = hand.average(returned)
    method = make("fml", task=replace(SMALL, class_weights=weights))
    state, _ = run(method, federation)
    assert_close(state.small, hand.small, 1e-9)
    hand.assert_own(method, state)


def cut_off(matrix, energy):
    """(a matrix of the least rank with this share of the energy, what it takes to send it)."""
    u, s, v = np.linalg.svd(matrix.numpy(), full_matrices=False)
    rank = 0
    while (s[:rank] ** 2).sum() < energy * (s**2).sum():
        rank += 1
    numbers = sum(u[:, i].size + 1 + v[i].size for i in range(rank))
    cut = torch.from_numpy(u[:, :rank] @ np.diag(s[:rank]) @ v[:rank])
    return cut, min(numbers, matrix.numel())


def sent(params, energy):
    """(what arrives of a model, how many numbers that took)."""
    arrived, numbers = {}, 0
    for name, x in params.items():
        arrived[name], n = cut_off(x, energy) if x.dim() == 2 else (x, x.numel())
        numbers += n
    return arrived, numbers


def test_fedkd_by_hand():
    federation = toy_federation(SIZES)
    hand, method = Hand(federation), make("fedkd")
    maps = {}
    for c, features in zip(SEEN, (9, 5, 9, 5), strict=True):
        maps[c] = torch.nn.Linear(30, features, bias=False).double()
        drawn = method.init(5, 0).models["projection"][c]
        assert drawn["weight"].shape == (features, 30)
        assert 0.9 * 30**-0.5 < float(drawn["weight"].abs().max()) <= 30**-0.5
        maps[c].load_state_dict(drawn)

    def losses(teacher, student, w, x, y):
        r_t, r_s = teacher.body(x), student.body(x)
        t, s = teacher.head(r_t), student.head(r_s)
        labels = cross_entropy(t, y), cross_entropy(s, y)
        both = sum(labels).detach()
        from_s = kl_div(t.log_softmax(-1), s.softmax(-1).detach(), reduction="batchmean")
        from_t = kl_div(s.log_softmax(-1), t.softmax(-1).detach(), reduction="batchmean")
        yield labels[0] + (from_s + mse_loss(r_t, w(r_s).detach())) / both
        yield labels[1] + (from_t + mse_loss(w(r_s), r_t.detach())) / both

    state = method.init(5, 0)
    for number, energy in enumerate((0.5, 0.65, 0.8)):
        received, down = sent(hand.small, energy)
        returned, up = [], []
        for c, own in hand.own.items():
            student = module_of(SMALL, received)
            hand.train(hand.shard(c), number, c, (own, student, maps[c]), losses)
            arrived, numbers = sent(student.state_dict(), energy)
            returned.append(arrived)
            up.append(numbers)
        hand.small = average(returned, [0.25] * 4)
        state, cohort = run(method, federation, 1, state=state, first=number)
        assert cohort.journal.down == 4 * down < 4 * tree.numel(state.small)
        assert cohort.journal.up == sum(up) < 4 * tree.numel(state.small)
    assert_close(state.small, hand.small, 1e-9)
    hand.assert_own(method, state)
    for c in hand.own:
        assert_params(state.models["projection"][c], maps[c].state_dict())


def learn_lam(lam, own, small, steps, weights):
    lam = torch.tensor(lam, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([lam], 0.05)
    own.eval(), small.eval()
    for b in steps:
        optimiser.zero_grad()
        mixed = lam * own(b.x).detach() + (1 - lam) * small(b.x).detach()
        label_loss(mixed, b.y, weights).backward()
        optimiser.step()
        lam.data.clip_(0, 1)
    return lam.item()


@weighed
def test_fedapen_by_hand(weights):
    federation = toy_federation(SIZES)
    hand, weighing = Hand(federation), sgd(epochs=2)
    lam = dict.fromkeys(SEEN, 0.5)
    for number in range(ROUNDS):
        trained = {}
        for c, own in hand.own.items():
            n = SIZES[c]
            drawn = streams.generator(0, "holdout", c).permutation(n)
            out = set(drawn[: {7: 3, 12: 5, 6: 2, 10: 4}[n]].tolist())  # 40 %
            held, rest = (
                [part[[(i in out) is which for i in range(n)]] for part in hand.shard(c)]
                for which in (True, False)
            )
            small = module_of(SMALL, hand.small)
            steps = batches(*held, weighing, number, "lam", c)
            lam[c] = w = learn_lam(lam[c], own, small, steps, weights)

            def losses(own, small, x, y, w=w):
                a, b = own(x), small(x)
                for ours, other in ((a, b.detach()), (b, a.detach())):
                    ensemble = w * ours + (1 - w) * other
                    if ours is b:
                        ensemble = w * other + (1 - w) * ours
                    kl = kl_div(ours.log_softmax(-1), other.softmax(-1), reduction="batchmean")
                    yield kl + sum(label_loss(z, y, weights) for z in (ours, ensemble))

            hand.train(rest, number, c, (own, small), losses)
            trained[c] = small
        hand.small = average([net.state_dict() for net in trained.values()], [0.25] * 4)
    method = make("fedapen", task=replace(SMALL, class_weights=weights))
    state, cohort = run(method, federation)
    # What lam is learnt on is not counted as trained on: two epochs of the rest.
    assert cohort.journal.examples == 2 * (4 + 7 + 4 + 6) and len(cohort.journal.losses) == 1
    assert_close(state.small, hand.small, 1e-9)
    torch.testing.assert_close(state.lam[:4], torch.tensor([*lam.values()]).double())
    assert (state.lam[:4] - 0.5).abs().max() > 0.01 and float(state.lam[4]) == 0.5
    for c, own in hand.own.items():
        assert_params(state.models["large"][c], own.state_dict())
        assert_params(state.models["small"][c], trained[c].state_dict())
    averaged = dict.fromkeys(SEEN, module_of(SMALL, hand.small))
    for smalls, way in ((trained, "personalise"), (averaged, "with_average")):

        def expected(c, x, smalls=smalls):
            logits = lam[c] * hand.own[c].eval()(x) + (1 - lam[c]) * smalls[c].eval()(x)
            return logits.softmax(-1).detach()

        assert_predicts(method, state, hand, expected, way=way)


# -- what is sent -------------------------------------------------------------------------


def test_a_message_has_every_shape_of_a_model_and_biases_as_they_are():
    draw = np.random.default_rng(0)
    kernel = np.einsum("a,bcd->abcd", draw.normal(size=8), draw.normal(size=(4, 5, 5)))
    params = {"conv.weight": torch.from_numpy(kernel), "conv.bias": torch.arange(8.0)}
    message = compress(params, 0.99)
    assert message["conv.weight"].sigma.shape == (1,)  # one pattern for all channels
    assert message["conv.bias"] is params["conv.bias"]
    assert tree.numel(message) == 8 + 1 + 4 * 5 * 5 + 8
    assert_close(recover(message, params), params, 1e-12)


# -- the hold-out -------------------------------------------------------------------------


def test_the_energy_rises_linearly_from_the_first_round_to_the_last():
    method = make("fedkd", horizon=4, first_energy=0.95, last_energy=0.98)
    found = [method.energy(number) for number in (0, 1, 2, 3, 9)]
    assert found == pytest.approx([0.95, 0.96, 0.97, 0.98, 0.98])
    assert make("fedkd", horizon=1, first_energy=0.9).energy(0) == 0.9
    defaults = methods.load("fedkd")(task=SMALL, local=SOLVER, horizon=5)
    assert (defaults.energy(0), defaults.energy(4)) == pytest.approx((0.95, 0.98))


@pytest.mark.parametrize(("size", "held"), [(0, 0), (1, 0), (2, 1), (9, 1), (40, 2), (4000, 200)])
def test_a_hold_out_has_an_example_if_one_is_left_for_training(size, held):
    assert holdout.holdout_size(size, 0.05) == held
    assert holdout.holdout_size(size, 0.99999) == max(size - 1, 0)


def test_the_absent_count_with_as_many_examples_as_those_who_hold_some_out():
    half = cohort_of(SMALL, toy_federation((10, 10, 10, 10), unseen=0), [0, 1])
    for cohort in holdout.apart(half, 0.3):
        assert cohort.average({"w": torch.ones(2)}, {"w": torch.zeros(())}) == {"w": 0.5}


# -- evaluation ---------------------------------------------------------------------------


def test_who_never_took_part_has_the_first_private_model_and_the_servers_shared_one():
    federation, method = toy_federation(SIZES), make("fedapen")
    state, cohort = run(method, federation, ids=[1, 2])
    personal = method.personalise(state, cohort_of(method.task, federation, round=ROUNDS))
    for c in (0, 3):
        assert_close(personal.models["large"][c], LARGE[c % 2].init(0), 0)
        assert_close(personal.models["small"][c], state.small, 0)
    for c in (1, 2):
        assert_close(personal.models["small"][c], state.models["small"][c], 0)
        bias = personal.models["small"][c]["head.1.bias"]
        assert not torch.equal(bias, state.small["head.1.bias"])
    assert personal.lam.tolist() == state.lam[:4].tolist()


@every_method
def test_unseen_clients_predict_with_the_servers_model_and_aggregated_uses_it(name):
    federation, method = toy_federation(SIZES), make(name)
    state, _ = run(method, federation)
    for group, protocols in (("seen", {"default", "aggregated"}), ("unseen", {"default"})):
        cohort = cohort_of(SMALL, federation, federation.ids(group), round=ROUNDS)
        found = dict(prepare(method, state, cohort, group))
        assert found.keys() == protocols
        if group == "unseen" or name != "fedapen":
            last = found["default" if group == "unseen" else "aggregated"]
            assert_close(tree.take(last, 0), state.small, 0)
            expected = cohort.score(SMALL.log_probs, cohort.held(state.small), split="test")
            torch.testing.assert_close(cohort.score(method.predict, last, split="test"), expected)
