"""FedJETs with anchors against a loop over clients and their experts; who gets what; identities."""

import pytest
from reference import Mixture, module_of, owned
from support import assert_close, cohort_of, sgd, tiny_task, toy_federation

from fedlib import methods, tree

SIZES = (7, 12, 6, 10, 11, 8)  # three anchors, two others, and an unseen client
EXPERTS = 3


class ByHand:
    """A round from a state, with modules of PyTorch and loops."""

    def __init__(self, method, data, model):
        self.method, self.data, self.model = method, data, model
        self.sizes = data.train.sizes[:5].tolist()

    def gate_of(self, client):
        x, _ = owned(self.data, client)
        return module_of(self.method.gate, self.model["gate"])(x).softmax(-1).mean(0).detach()

    def experts_of(self, client):
        if client < EXPERTS:
            return [client]
        return sorted(self.gate_of(client).argsort(descending=True)[:2].tolist())

    def train(self, client, own):
        """{number: expert}, and main expert, gate and noise network, as the client trained them."""
        hand = Mixture(self.method, self.model, own)
        hand.learn(*owned(self.data, client), self.method.local, 0, "fit", client)
        return hand.experts(), hand.shared()

    def mean(self, trees, clients):
        total = sum(self.sizes[c] for c in clients)
        weights = [self.sizes[c] / total for c in clients]
        return tree.map(lambda *xs: sum(w * x for w, x in zip(weights, xs, strict=True)), *trees)

    def round(self, clients):
        trained = {c: self.train(c, self.experts_of(c)) for c in clients}
        routed = []
        for i in range(EXPERTS):
            who = [c for c in clients if i in trained[c][0]]
            before = tree.take(self.model["routed"], i)
            routed.append(self.mean([trained[c][0][i] for c in who], who) if who else before)
        shared = self.mean([trained[c][1] for c in clients], clients)
        return {"routed": tree.stack(routed), **shared}


@pytest.mark.parametrize("clients", [[0, 1, 2, 3, 4], [1, 4]], ids=["all", "an anchor is absent"])
def test_a_round_is_a_loop_over_clients_and_the_experts_they_have(clients):
    tasks = {"task": tiny_task(), "gate": tiny_task(classes=EXPERTS, hidden=5)}
    method = methods.load("fedjets")(**tasks, local=sgd(), num_main=1, entropy_weight=0.1)
    data = toy_federation(SIZES)
    start = method.init(data.num_clients, 0)
    expected = ByHand(method, data, start.model).round(clients)
    after = method.round(start, cohort_of(method.task, data, clients, executor="batched")).model
    assert_close({name: after[name] for name in expected}, expected, 1e-10)  # float64
