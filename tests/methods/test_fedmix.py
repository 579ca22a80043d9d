"""FedMix: rounds and predictions against a loop of `nn.Module` and `torch.optim`, expert by expert.

What is pruned is really left out here, where the method masks it.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import EPOCHS, ROUNDS, Reference, descend, descent, double_sum, module_of
from support import cohort_of, run, same_bits, sgd, tiny_task, toy_federation

from fedlib import methods, tree
from fedlib.errors import DataError

LABELS, FEATURES, EXPERTS = 3, 6, 3  # of TinyNet
SERVER_LR = 0.3
SOLVER = sgd(lr=0.2, epochs=EPOCHS, momentum=0.0, weight_decay=0.0)  # plain SGD, as in the paper
BIAS = "head.1.bias"  # of TinyNet
# Float64; Adam divides differences by their size, which magnifies rounding.
CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def mix(**params):
    settings = {"task": tiny_task(), "local": SOLVER, "num_experts": EXPERTS}
    return methods.load("fedmix")(**settings | {"server_lr": SERVER_LR} | params)


class Gate:
    """What a client has for itself: A and b of its gate, and a bias of its experts' heads."""

    def __init__(self):
        zeros = torch.zeros(FEATURES, EXPERTS), torch.zeros(EXPERTS), torch.zeros(LABELS)
        self.A, self.b, self.bias = (x.double().requires_grad_() for x in zeros)


class FedMixByHand(Reference):
    """Algorithms 1 and 2, one client, expert and number at a time.

    Attributes:
      method: whose settings are followed.
      values: what the table is conditioned on, of all examples.
      own: {client: its Gate}; a gate that all share is in `gate`.
      sent, returned: experts, over all clients and rounds.
    """

    def __init__(self, federation, method, values=None):
        super().__init__(federation, solver=SOLVER)
        self.method, self.values = method, federation.y if values is None else values
        state = method.init(federation.num_clients, 0)
        drawn = tree.unstack(method.whole({"experts": state.experts, "bias": torch.zeros(3)}))
        self.experts = [module_of(method.task, params) for params in drawn]
        self.phi = state.phi.clone().requires_grad_()
        self.gate, self.own = Gate(), {c: Gate() for c in range(federation.num_clients)}
        shared = [[*net.named_parameters()] for net in self.experts]
        self.shared = [[p for n, p in own if not self.private(n)] for own in shared]
        self.adams = [torch.optim.Adam(own, lr=SERVER_LR) for own in self.shared]
        self.adam = torch.optim.Adam([self.phi, self.gate.A, self.gate.b], lr=SERVER_LR)
        self.stored = {c: [1 / EXPERTS] * EXPERTS for c in self.own}
        self.sent, self.returned, self.done, self.divergence = 0, 0, {}, []
        self.rounds(self.client, self.server)

    def private(self, name):
        return self.method.private_bias and name == BIAS

    def kept(self, q, received):
        """Experts that reach the threshold, or the best if none does."""
        kept = [k for k in received if q[k].item() >= self.method.pruning / EXPERTS - 1e-15]
        return kept or [max(received, key=lambda k: float(q[k]))]

    def received(self, client):
        threshold = 0.9 * self.method.pruning / EXPERTS
        return [k for k, q in enumerate(self.stored[client]) if q >= threshold]

    def of_client(self, client):
        return torch.from_numpy(self.values[self.federation.train.of(client)])

    def marginal(self, client, table):
        counts = torch.bincount(self.of_client(client), minlength=len(table)).double()
        return (counts / counts.sum()) @ table

    def logits(self, gate, q, kept, features):
        pooled = sum(q[k] / q[kept].sum() * features[k] for k in kept)
        return pooled @ gate.A + gate.b

    def output(self, net, gate, features):
        """Logits of an expert, whose bias may be the client's own."""
        if not self.method.private_bias:
            return net.head(features)
        return features @ net.head[1].weight.T + gate.bias

    def loss(self, client, nets, phi, gate, received):
        method = self.method

        def loss(batch):
            given, table, y = self.of_client(client)[batch.index], phi.softmax(1), batch.y
            q = self.marginal(client, table).detach()
            kept = self.kept(q, received)
            features = {k: nets[k].body(batch.x) for k in kept}
            log_gate = self.logits(gate, q, kept, features).log_softmax(1)
            total = (table[given] * log_gate).sum(1)
            for k in kept:
                output = self.output(nets[k], gate, features[k]).log_softmax(1)
                log_p = output[torch.arange(len(y)), y]
                total = total + table[given, k] / table[given][:, kept].sum(1) * log_p
            if method.local_entropy:
                total = total - (table[given] * table[given].log()).sum(1)
            return -total.mean()

        return loss

    def client(self, client, number):
        """Keeps (experts, table, gate, marginal, numbers of the experts that are returned)."""
        received, gate = self.received(client), self.own[client]
        nets, phi = copy.deepcopy(self.experts), self.phi.detach().clone().requires_grad_()
        if self.method.gates == "shared":
            gate.A, gate.b = (
                x.detach().clone().requires_grad_() for x in (self.gate.A, self.gate.b)
            )
        parameters = [p for net in nets for p in net.parameters()]
        solver = descent([*parameters, phi, gate.A, gate.b, gate.bias], SOLVER)
        self.fit(client, number, [solver], self.loss(client, nets, phi, gate, received))
        q = self.marginal(client, phi.detach().softmax(1))
        returned = self.kept(q, received)
        self.sent, self.returned = self.sent + len(received), self.returned + len(returned)
        self.done[client] = nets, phi.detach(), gate, q, returned

    def server(self, ids):
        done = [self.done[client] for client in ids]
        for client, (*_, q, _) in zip(self.seen, done, strict=True):
            self.stored[client] = q.tolist()
        self.divergence.append([self.renew(k, done) for k in range(EXPERTS)])
        prior = torch.ones(len(self.phi)).double() / len(self.phi)
        mean = prior @ self.phi.softmax(1)
        entropy = -(mean * mean.log()).sum()
        (slope,) = torch.autograd.grad(entropy, self.phi)
        gates = [gate for _, _, gate, *_ in done]
        self.phi.grad = self.away(self.phi, [phi for _, phi, *_ in done])
        self.phi.grad -= self.method.entropy_weight * slope
        self.gate.A.grad = self.away(self.gate.A, [gate.A for gate in gates])
        self.gate.b.grad = self.away(self.gate.b, [gate.b for gate in gates])
        self.adam.step()

    def away(self, ours, theirs):
        """The clients' mean difference, by examples."""
        return sum(p * (ours - x).detach() for p, x in zip(self.weights, theirs, strict=True))

    def renew(self, k, done):
        """An expert's step; how its clients diverged."""
        mass = [
            p * (k in returned) * float(q[k] / q[returned].sum())
            for p, (*_, q, returned) in zip(self.weights, done, strict=True)
        ]
        if sum(mass) == 0:
            return 0.0
        weights = [m / sum(mass) for m in mass]
        theirs = [
            [p for n, p in nets[k].named_parameters() if not self.private(n)] for nets, *_ in done
        ]
        differences = {}
        for i, (ours, *others) in enumerate(zip(self.shared[k], *theirs, strict=True)):
            differences[i] = torch.stack([(ours - o).detach() for o in others])
            ours.grad = sum(w * d for w, d in zip(weights, differences[i], strict=True))
        self.adams[k].step()
        return float(double_sum(differences, weights))

    def predicted(self, client, gates=None):
        """Probabilities of a client's test examples, by its gate or the mean of those given."""
        x, _ = self.shard(client, "test")
        table, total = self.phi.detach().softmax(1), 0
        with torch.no_grad():
            features = [net.body(x) for net in self.experts]
            for s, share in gates or [(client, 1.0)]:
                gate = self.gate if self.method.gates == "shared" else self.own[s]
                q = self.marginal(s, table)
                kept = self.kept(q, self.received(s))
                logits = self.logits(gate, q, kept, features)
                if gates is None:  # what a client was not sent it cannot trust
                    left_out = [k for k in range(EXPERTS) if k not in kept]
                    logits[:, left_out] = -torch.inf
                total = total + share * logits.softmax(1)
            bias = copy.copy(self.own[client])
            if gates is not None:
                bias.bias = torch.stack([self.own[s].bias for s, _ in gates]).mean(0)
            outputs = [
                self.output(net, bias, h) for net, h in zip(self.experts, features, strict=True)
            ]
        return sum(total[:, [k]] * out.softmax(1) for k, out in enumerate(outputs))


def skewed():
    """Clients that lack labels, so that their marginals differ: 0 and 1, 1 and 2, 2 and 0, any."""
    federation = toy_federation(sizes=(9, 12, 10, 11))
    y = federation.y.copy()
    for client, lacks in enumerate((2, 0, 1)):
        rows = federation.train.of(client)
        y[rows] = np.where(y[rows] == lacks, (lacks + 1) % LABELS, y[rows])
    return replace(federation, y=y, side=np.random.default_rng(5).integers(0, 4, len(y)))


SETTINGS = [
    *({}, {"gates": "shared", "entropy_weight": 0.3}, {"pruning": 0.9}),
    *({"pruning": 0.97, "private_bias": True}, {"pruning": 0.9, "gates": "shared"}),
    {"local_entropy": True, "condition": "side", "num_sides": 4},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rounds_and_predictions_are_those_of_the_paper_by_hand(settings):
    federation, method = skewed(), mix(horizon=ROUNDS, **settings)
    hand = FedMixByHand(federation, method, federation.side if "condition" in settings else None)
    state, down, up = method.init(federation.num_clients, 0), 0, 0
    for number in range(ROUNDS):
        cohort = cohort_of(method.task, federation, executor="batched", round=number)
        state = method.round(state, cohort)
        sent = cohort.journal.down / cohort.size, cohort.journal.up / cohort.size
        down, up = down + sent[0], up + sent[1]
    for k, own in enumerate(hand.shared):
        for (name, value), expected in zip(state.experts.items(), own, strict=True):
            torch.testing.assert_close(value[k], expected.detach(), msg=name, **CLOSE)
    torch.testing.assert_close(state.phi, hand.phi.detach(), **CLOSE)
    divergence = torch.tensor(hand.divergence, dtype=torch.float64)
    torch.testing.assert_close(state.divergence, divergence, **CLOSE)
    for client, gate in hand.own.items():
        kept = {**state.private.get("gate", {}), "bias": state.private.get("bias")}
        for name, value in kept.items():
            if value is not None:
                torch.testing.assert_close(value[client], getattr(gate, name).detach(), **CLOSE)
        stored = torch.tensor(hand.stored[client]).double()
        torch.testing.assert_close(state.marginal[client], stored, **CLOSE)
    # Of so many experts on average, a table, and a gate if that is shared.
    model = sum(p.numel() for p in hand.shared[0])
    rest = ROUNDS * (len(state.phi) * EXPERTS + tree.numel(state.gate))
    assert down == pytest.approx(hand.sent * model / 3 + rest, rel=1e-12)
    assert up == pytest.approx(hand.returned * model / 3 + rest, rel=1e-12)
    assert (hand.returned < hand.sent < ROUNDS * 3 * EXPERTS) == ("pruning" in settings)

    # What a client is not sent, or is sent and does not use, is known when it is evaluated.
    everybody = cohort_of(method.task, federation, range(4), round=ROUNDS)
    known = everybody.some(np.arange(3))
    prior = [*zip(hand.seen, hand.weights, strict=True)]
    for way, cohort, gates in (("personalise", known, None), ("anybody", everybody, prior)):
        found = cohort.score(method.predict, getattr(method, way)(state, cohort), split="test")
        for row, client in zip(found, cohort.host_ids, strict=True):
            torch.testing.assert_close(row.exp(), hand.predicted(client, gates), **CLOSE)


@pytest.mark.parametrize("gates", ["private", "shared"])
@pytest.mark.parametrize("private_bias", [False, True])
def test_a_new_client_fits_nothing_but_what_is_private_by_hand(gates, private_bias):
    federation, epochs = skewed(), 4
    method = mix(gates=gates, private_bias=private_bias, gate_epochs=epochs)
    hand, state = FedMixByHand(federation, method), run(method, federation)
    newcomer = cohort_of(method.task, federation, federation.ids("unseen"), round=ROUNDS)
    personal, gate = method.welcome(state, newcomer), hand.own[3]
    if gates == "shared":
        gate.A, gate.b = hand.gate.A.detach(), hand.gate.b.detach()
    own = [x for x in (gate.A, gate.b) if x.requires_grad] + [gate.bias] * private_bias
    phi = hand.phi.detach()
    if own:
        batches = hand.batches(3, ROUNDS, "welcome", replace(SOLVER, epochs=epochs))
        loss = hand.loss(3, hand.experts, phi, gate, range(EXPERTS))
        descend([descent(own, SOLVER)], batches, loss)
    for name, value in personal.gate.items():
        torch.testing.assert_close(value[0], getattr(gate, name).detach(), **CLOSE)
    if private_bias:
        for k in range(EXPERTS):
            torch.testing.assert_close(personal.experts[BIAS][0, k], gate.bias.detach(), **CLOSE)
    torch.testing.assert_close(personal.pooling[0], hand.marginal(3, phi.softmax(1)), **CLOSE)


def test_fine_tuned_clients_are_those_before_their_upload():
    method, federation = mix(private_bias=True), toy_federation()
    state = run(method, federation, rounds=2)
    cohort = cohort_of(method.task, federation, round=2)
    tuned, after = method.finetune(state, cohort), method.round(state, cohort)
    for name, value in tuned.gate.items():
        assert torch.equal(value, after.private["gate"][name][:3])
    torch.testing.assert_close(tuned.pooling, after.marginal[:3])
    assert torch.equal(tuned.experts[BIAS][:, 1], after.private["bias"][:3])
    name = "body.0.weight"
    assert not torch.equal(tuned.experts[name][0], tuned.experts[name][1])


def test_tables_are_recorded_after_their_rounds():
    method, federation = mix(table_rounds=[0, 2, 9]), toy_federation()
    found = method.diagnostics(run(method, federation))
    assert found["table_rounds"].tolist() == [0, 2]  # round 9 never came
    assert (found["tables"][0] == 1 / EXPERTS).all()
    second = run(method, federation, rounds=2).phi.softmax(-1)
    torch.testing.assert_close(found["tables"][1], second)
    assert "tables" not in mix().diagnostics(run(mix(), federation, rounds=0))


def test_a_server_that_reads_labels_changes_nothing_else():
    method, federation = mix(reads_labels=True), skewed()
    state = run(method, federation)
    assert same_bits(state, run(mix(), federation))
    read = method.diagnostics(state)["recovered"]
    torch.testing.assert_close(read.sum(1), torch.ones(4).double())
    everybody = cohort_of(method.task, federation, range(3))
    true = method.measure("default", method.personalise(state, everybody), everybody)["labels"]
    assert ((true - read[:3]).abs().sum(1) < (true - 1 / LABELS).abs().sum(1)).all()
    with pytest.raises(ValueError, match="reads_labels needs condition 'label', got 'side'"):
        mix(condition="side", num_sides=4, reads_labels=True)


def test_side_information_has_to_be_there():
    federation, method = toy_federation(), mix(condition="side", num_sides=5)
    with pytest.raises(DataError, match="no side information; condition on labels instead"):
        run(method, federation)
    with pytest.raises(DataError, match="side must be below 5, got 5"):
        run(method, replace(federation, side=np.arange(len(federation.y)) % 6))
