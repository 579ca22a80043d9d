"""FedAvg with Adam on the server, biased FedAvg and Local/Global: rounds and every protocol against
a loop of `nn.Module`, `torch.optim.SGD` and `torch.optim.Adam`.
"""

import copy
from dataclasses import replace

import pytest
import torch
from reference import (
    SOLVER,
    Reference,
    assert_params,
    cross_entropy_of,
    descend,
    descent,
    double_sum,
    module_of,
)
from support import assert_close, cohort_of, run, tiny_task, toy_federation

from fedlib import methods, tree

SIZES = (7, 12, 6, 10, 11)  # the last client is unseen; no batch of 4 leaves one alone
COHORTS = ([0, 2], [1], [2, 1])  # client 3 never takes part
SERVER_LR, EPOCHS = 0.02, 10  # of a new client
BIAS = "head.1.bias"  # of the tiny network
# Method, hyper-parameters, how the names of private entries begin.
CASES = {
    "nothing private": ("fedavg_adam", {}, ()),
    "bias": ("biased_fedavg", {}, (BIAS,)),
    "first layer": ("local_global", {}, ("body.0.",)),
    "statistics too": ("local_global", {"private": "body.1"}, ("body.0.", "body.1.")),
}


class ByHand(Reference):
    """The rounds of `COHORTS`.

    Attributes:
      start: parameters before the first round; a private bias is zero.
      shared_net: the server's module.
      nets, solvers: of all clients, whose entries that begin with `private` are never loaded.
    """

    def __init__(self, federation, method, private):
        super().__init__(federation)
        task, self.private = method.task, private
        zero = {BIAS: torch.zeros(3).double()} if BIAS in private else {}
        self.start = task.init(0) | zero
        clients = range(federation.num_clients)
        self.shared_net = module_of(task, self.start)
        self.nets = {c: module_of(task, self.start) for c in clients}
        self.solvers = {c: [descent(net.parameters(), SOLVER)] for c, net in self.nets.items()}
        self.shared = self.parameters(self.shared_net, private=False)
        self.adam = torch.optim.Adam(self.shared.values(), lr=SERVER_LR)
        self.divergence = []
        self.rounds(self.client, self.server, COHORTS)

    def parameters(self, net, private):
        return {n: p for n, p in net.named_parameters() if n.startswith(self.private) == private}

    def client(self, c, number):
        net = self.nets[c].train()
        own = {n: v for n, v in net.state_dict().items() if n.startswith(self.private)}
        net.load_state_dict({**self.shared_net.state_dict(), **own})
        self.fit(c, number, self.solvers[c], cross_entropy_of(net))

    def server(self, ids):
        average = self.average({c: self.nets[c] for c in ids})
        differences = {
            name: torch.stack([w - self.nets[c].state_dict()[name] for c in ids]).detach()
            for name, w in self.shared.items()
        }
        self.divergence.append([float(double_sum(differences, [self.sizes[c] for c in ids]))])
        for name, w in self.shared.items():
            w.grad = w.detach() - average[name]
        self.adam.step()
        for name, buffer in self.shared_net.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(average[name])

    def new_shard(self, x):
        """Probabilities by what all clients that train have."""
        nets = []
        for c in self.seen:
            net, values = copy.deepcopy(self.nets[c]).eval(), self.nets[c].state_dict()
            own = {n: v for n, v in values.items() if n.startswith(self.private)}
            net.load_state_dict({**self.shared_net.state_dict(), **own})
            nets.append(net)
        net, depth = nets[0], len({name.split(".")[1] for name in self.private})
        if BIAS in self.private:
            mean = torch.stack([net.head[1].bias for net in nets]).mean(0)
            net.load_state_dict({**net.state_dict(), BIAS: mean})
            depth = 0
        with torch.no_grad():
            mean = torch.stack([net.body[:depth](x) for net in nets]).mean(0)
            return net.head(net.body[depth:](mean)).softmax(-1)

    def welcomed(self, c, task, number):
        """The values of a client that fits what is private."""
        net = module_of(task, {**self.shared_net.state_dict(), **self.private_start()})
        own = list(self.parameters(net, private=True).values())
        batches = self.batches(c, number, "welcome", replace(SOLVER, epochs=EPOCHS))
        solvers = [descent(own, SOLVER)] if own else []
        descend(solvers, batches, cross_entropy_of(net))
        return net.state_dict()

    def private_start(self):
        return {n: v for n, v in self.start.items() if n.startswith(self.private)}


@pytest.mark.parametrize("case", CASES)
def test_rounds_and_protocols_are_those_of_an_independent_loop(case):
    name, params, private = CASES[case]
    federation, task = toy_federation(SIZES), tiny_task(norm=True)
    method = methods.load(name)(task=task, local=SOLVER, server_lr=SERVER_LR, horizon=2, **params)
    state = run(method, federation, COHORTS, executor="batched")
    hand, number = ByHand(federation, method, private), len(COHORTS)

    theirs = hand.shared_net.state_dict()
    assert state.private.keys() == hand.private_start().keys()
    assert state.params.keys() == task.init(0).keys() - state.private.keys()
    assert_params(state.params, {name: theirs[name] for name in state.params})
    for c, net in hand.nets.items():  # who never took part keeps the common start
        own = {name: net.state_dict()[name] for name in state.private}
        assert_params(tree.take(state.private, c), own)
    # In round 1 one client trains, who cannot disagree; rounding of a handful of tensors.
    expected = torch.tensor(hand.divergence[:2], dtype=torch.float64)
    torch.testing.assert_close(state.divergence, expected, rtol=1e-9, atol=1e-14)

    everybody = cohort_of(task, federation, range(5))
    personal = getattr(method, method.ways["seen"]["new_shard"])(state, everybody)
    assert all(tree.is_broadcast(leaf) for leaf in tree.leaves(personal)) or BIAS in private
    found = everybody.score(method.predict, personal, split="test")
    for c, row in enumerate(found):
        torch.testing.assert_close(row.exp(), hand.new_shard(hand.shard(c, "test")[0]))
    if private:
        newcomer = cohort_of(task, federation, [4], executor="batched", round=number)
        assert_params(tree.take(method.welcome(state, newcomer), 0), hand.welcomed(4, task, number))

    cohort = cohort_of(task, federation, executor="batched", round=number)
    tuned = method.finetune(state, cohort)
    for c in hand.seen:
        hand.client(c, number)
        assert_params(tree.take(tuned, c), hand.nets[c].state_dict())
    after = method.round(state, cohort)
    assert_close({n: tuned[n] for n in after.private}, tree.take(after.private, cohort.ids))
