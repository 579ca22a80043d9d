"""Autoencoders of clients, and FedMix with them: sections 3 and 7.6 of the specification."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import batches, module_of, owned
from support import assert_close, batch_of, cohort_of, run, sgd, tiny_task, toy_federation
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence

from fedlib import methods, tree
from fedlib.engine.solvers import Adam
from fedlib.engine.task import Task
from fedlib.methods import fedmix_vae
from fedlib.methods.parts.early_stopping import EarlyStopping
from fedlib.models import vae
from fedlib.models.layers.random import gaussian

LATENT = 2
CODER = Task(lambda: vae.build(4, hidden=(5,), latent=LATENT), dtype=torch.float64)
ADAM = Adam(lr=0.05, batch_size=4)


def federation_of_pixels():
    """Inputs in [0, 1], and a validation split."""
    made = toy_federation()
    return replace(made, x=1 / (1 + np.exp(-made.x)), val=made.test, test=made.val)


def coders(params):
    """Encoder to (mean, standard deviation), and decoder, as plain modules."""
    net = vae.build(4, hidden=(5,), latent=LATENT).double()
    net.load_state_dict(params)

    def encode(x):
        mean, log_variance = net.body(x).chunk(2, -1)
        return Normal(mean, log_variance.exp().sqrt())

    return net, encode, nn.Sequential(*list(net.head)[1:])


def bound(encode, decode, x, noise, pixels=None):
    """The log-likelihood of the pixels, less the divergence of the code with this noise."""
    code = encode(x)
    pixels = x if pixels is None else pixels
    logits = decode(code.mean + code.stddev * noise)
    seen = Bernoulli(logits=logits, validate_args=False).log_prob(pixels).sum(-1)
    return seen - kl_divergence(code, Normal(torch.zeros(()).double(), 1.0)).sum(-1)


# -- bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "std"), [((0.0,), (1.0,)), ((0.1,), (0.3,)), ((), ())])
def test_however_images_are_scaled_their_pixels_are_in_the_unit_interval(mean, std):
    federation = toy_federation()
    draw = np.random.default_rng(0)
    stored = draw.integers(0, 256, size=(len(federation.x), 1, 2, 2), dtype=np.uint8)
    images = replace(federation, x=stored, mean=mean, std=std)
    inputs = cohort_of(CODER, images).data.inputs(torch.arange(5))
    given = fedmix_vae.draw_constants(CODER, cohort_of(CODER, images))
    params = CODER.init(3)
    found = fedmix_vae.elbo(CODER, params, given, batch_of(inputs))
    _, *both = coders(params)
    pixels = torch.from_numpy(stored[:5] / 255).flatten(1)
    torch.testing.assert_close(found, bound(*both, inputs, given.noise, pixels))


def test_columns_of_a_table_that_were_scaled_are_pixels_again():
    pixels, params = federation_of_pixels(), CODER.init(3)
    table = replace(pixels, x=(pixels.x - 0.5) / 0.25, mean=(0.5,) * 4, std=(0.25,) * 4)
    inputs, expected = (torch.from_numpy(own.x[:5]).double() for own in (table, pixels))
    given = fedmix_vae.draw_constants(CODER, cohort_of(CODER, table))
    found = fedmix_vae.elbo(CODER, params, given, batch_of(inputs))
    assert_close(found, bound(*coders(params)[1:], inputs, given.noise, expected))


def test_an_encoder_with_half_a_code_is_refused():
    task = tiny_task(hidden=3)
    with pytest.raises(ValueError, match="even number of outputs, got 3"):
        fedmix_vae.latent_of(task)


# -- training -------------------------------------------------------------------------------


def train_by_hand(federation, client, stopping):
    """One client's autoencoder by `torch.optim.Adam`, at its best check, and its epochs."""
    net, *both = coders(CODER.init(0))
    optimiser = torch.optim.Adam(net.parameters(), lr=ADAM.lr)
    fixed = fedmix_vae.draw_constants(CODER, cohort_of(CODER, federation)).noise
    best, least, failed, held_out = None, math.inf, 0, owned(federation, client, "val")[0]
    for epoch in range(stopping.max_epochs):
        for batch in batches(*owned(federation, client), ADAM, 0, f"vae/{epoch}", client):
            noise = gaussian(batch.key, torch.Size((len(batch.x), LATENT)), batch.x.device)
            optimiser.zero_grad()
            bound(*both, batch.x, noise).mean().neg().backward()
            optimiser.step()
        with torch.no_grad():
            now = -float(bound(*both, held_out, fixed).mean())
        failed = 0 if now < least else failed + 1
        if now < least:
            best, least = {k: v.clone() for k, v in net.state_dict().items()}, now
        if failed == stopping.patience:
            break
    return best, epoch + 1


@pytest.mark.parametrize("at_once", [20, 2])
def test_every_client_trains_an_autoencoder_until_it_stops(at_once, monkeypatch):
    monkeypatch.setattr(fedmix_vae, "AT_ONCE", at_once)
    federation = federation_of_pixels()
    stopping = EarlyStopping(max_epochs=10, check_every=1, patience=2, split="val")
    cohort = cohort_of(tiny_task(), federation, executor="batched")
    trained = fedmix_vae.train(cohort, CODER, local=ADAM, stopping=stopping)
    lasted = []
    for position, client in enumerate(federation.ids("seen").tolist()):
        expected, epochs = train_by_hand(federation, client, stopping)
        lasted.append(epochs)
        for name, value in expected.items():
            # Float64; Adam magnifies the rounding of small gradients in the first steps.
            torch.testing.assert_close(trained[name][position], value, rtol=1e-7, atol=1e-9)
    assert min(lasted) < max(lasted)  # or nothing has been stopped


# -- with FedMix ----------------------------------------------------------------------------


def test_gates_count_by_how_probable_the_input_is_among_their_clients():
    params = {"num_experts": 3, "server_lr": 0.1, "vae_epochs": 3, "vae": CODER}
    method = methods.load("fedmix_vae")(task=tiny_task(), local=sgd(), **params)
    federation = federation_of_pixels()
    state = run(method, federation, 2)
    cohort = cohort_of(method.task, federation, executor="batched", round=2)
    personal = method.with_autoencoders(state, cohort)
    found = cohort.score(method.predict, personal, split="val")
    anybody = tree.take(personal.anybody, 0)
    sizes = federation.train.sizes[federation.ids("seen")]
    for row, client in zip(found, federation.ids("seen").tolist(), strict=True):
        x = torch.from_numpy(federation.x[federation.val.of(client)])
        evidence = [
            fedmix_vae.elbo(CODER, params, tree.take(personal.constants, 0), batch_of(x))
            for params in tree.unstack(tree.take(personal.autoencoders, 0))
        ]
        p = torch.stack(evidence, 1).exp() * torch.from_numpy(sizes)
        p = p / p.sum(1, keepdim=True)  # [B, S]
        gate, output = gates_and_outputs(anybody, x)
        expected = torch.einsum("bs,bse,bel->bl", p, gate, output)
        torch.testing.assert_close(row.exp(), expected)


def gates_and_outputs(anybody, x):
    """p_s(e|x) [B, S, E], and the experts' probabilities [B, E, L], client by client."""
    nets = [module_of(tiny_task(), params).eval() for params in tree.unstack(anybody.experts)]
    with torch.no_grad():
        features = [net.body(x) for net in nets]
        output = [net.head(h).softmax(-1) for net, h in zip(nets, features, strict=True)]
        gates = []
        for s, q in enumerate(anybody.pooling):
            pooled = sum(w * h for w, h in zip(q, features, strict=True))
            gates.append((pooled @ anybody.gates["A"][s] + anybody.gates["b"][s]).softmax(-1))
    return torch.stack(gates, 1), torch.stack(output, 1)
