"""FD, FedProto, FedGH and FedTGP against independent loops of `nn.Module` and `torch.optim`."""

from dataclasses import replace

import pytest
import torch
from class_nets import DEEP, ROUNDS, Clients, F, L, assert_near, train
from reference import SOLVER, assert_module, cross_entropy_of, learn, weighed
from support import sgd
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, softmax

from fedlib import streams
from fedlib.methods.fedtgp import Generator


def mean_over_clients(sent, known):
    """What is known, renewed by the mean over clients that sent something of a class."""
    for k in {k for own in sent for k in own}:
        known[k] = sum(own[k] for own in sent if k in own) / sum(k in own for own in sent)


def assert_known(found, known):
    assert found.known.tolist() == [k in known for k in range(L)]
    for k, vector in known.items():
        assert_near(found.values[k], vector)


def uploads(sent):
    """Pairs of a vector and its class, by client and class."""
    pairs = [(vector, k) for own in sent for k, vector in sorted(own.items())]
    return torch.stack([vector for vector, _ in pairs]), torch.tensor([k for _, k in pairs])


def train_server(module, sent, loss, *stream, batch_size, epochs):
    """With a new optimiser, at a rate of 0.1."""
    plain = sgd(batch_size=batch_size, epochs=epochs, momentum=0.0, weight_decay=0.0)
    learn(module.parameters(), loss, *uploads(sent), plain, *stream)


# -- by hand ------------------------------------------------------------------------------


def test_fd():
    hand, known = Clients(), {}
    for number, cohort in enumerate(ROUNDS):
        sent = []
        for c in cohort:
            noted = {}

            def term(r, out, y, noted=noted):
                total = 0.0
                for row, k in zip(out, y.tolist(), strict=True):
                    noted.setdefault(k, []).append(row.detach().clone())
                    if k in known:
                        total = total + cross_entropy(row[None], softmax(known[k], 0)[None])
                return 0.7 * total / len(y)

            hand.train(c, number, term)
            sent.append({k: torch.stack(rows).mean(0) for k, rows in noted.items()})
        mean_over_clients(sent, known)
    _, state = train("fd", lam=0.7)
    hand.assert_models(state)
    assert_known(state.logits, known)


def pull(known, lam):
    """FedProto's term: PyTorch's mean squared error, where examples without prototype have 0."""

    def term(r, out, y):
        targets = [known.get(k, row.detach()) for row, k in zip(r, y.tolist(), strict=True)]
        return lam * mse_loss(r, torch.stack(targets))

    return term


def test_fedproto():
    hand, known = Clients(), {}
    for number, cohort in enumerate(ROUNDS):
        for c in cohort:
            hand.train(c, number, pull(known, lam=1.5))
        mean_over_clients([hand.prototypes(c) for c in cohort], known)
    _, state = train("fedproto", lam=1.5)
    hand.assert_models(state)
    assert_known(state.prototypes, known)


@weighed
def test_fedgh(weights):
    hand = Clients(weights)
    header = nn.Linear(F, L).double()
    first = DEEP.init(0)  # of the method's `task`
    header.load_state_dict({name: first[f"head.{name}"] for name in ("weight", "bias")})
    for number, cohort in enumerate(ROUNDS):
        for c in cohort:
            hand.nets[c].head.load_state_dict(header.state_dict())
            hand.train(c, number)
        sent = [hand.prototypes(c) for c in cohort]
        loss = cross_entropy_of(header, weights)
        train_server(header, sent, loss, number, "header", batch_size=1, epochs=1)
    _, state = train("fedgh", task=replace(DEEP, class_weights=weights), server_lr=0.1)
    hand.assert_models(state)
    assert_near(state.header["head.weight"], header.weight.detach())
    assert_near(state.header["head.bias"], header.bias.detach())


def margin_by_hand(sent, cap):
    """The largest of the distances of class means to their nearest others."""
    means = {}
    mean_over_clients(sent, means)
    nearest = [min((means[k] - means[j]).norm() for j in means if j != k) for k in means]
    return min(max(nearest).item(), cap)


@pytest.mark.parametrize("cap", [100.0, 0.05])
def test_fedtgp(cap):
    hand, known = Clients(), {}
    net = Generator(L, F).double()
    method, state = train("fedtgp", lam=1.5, cap=cap, server_lr=0.1, server_epochs=3)
    net.load_state_dict(method.generator.init(int(streams.keys(1, 0, "prototypes")[0])))
    for number, cohort in enumerate(ROUNDS):
        for c in cohort:
            hand.train(c, number, pull(known, lam=1.5))
        sent = [hand.prototypes(c) for c in cohort]
        margin = margin_by_hand(sent, cap)
        assert (margin == cap) == (cap < 1)

        def loss(sent, margin=margin):
            centres = net.out(torch.relu(net.hidden(net.embedding.weight)))
            apart = (sent.x[:, None] - centres[None]).square().sum(-1).sqrt()
            apart = apart + margin * nn.functional.one_hot(sent.y, L).double()
            return cross_entropy(-apart, sent.y)

        train_server(net, sent, loss, number, "prototypes", batch_size=SOLVER.batch_size, epochs=3)
        with torch.no_grad():
            centres = net(torch.arange(L))
        known = {k: centres[k] for k in {*known, *(k for own in sent for k in own)}}
    hand.assert_models(state)
    assert_known(state.prototypes, known)
    assert_module(state.generator, net)
