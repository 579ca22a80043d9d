"""The arithmetic of FedMix: table, bound, divergence, pruning, and the server."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from reference import double_sum
from support import tiny_task
from torch.func import vmap

from fedlib import tree
from fedlib.engine.parts import Total
from fedlib.methods.parts import divergence, variational
from fedlib.methods.parts.server_adam import ServerAdam


def matrix(rows):
    return torch.tensor(rows, dtype=torch.float64)


def close(ours, expected, places=8):
    """Golden values of the specification are printed with so many decimal places."""
    torch.testing.assert_close(
        torch.as_tensor(ours), matrix(expected), rtol=0, atol=0.6 * 10.0**-places
    )


# -- shares of labels -------------------------------------------------------------------------


def test_shares_of_labels_are_read_from_marginals():
    # As many experts as labels: a system of equations with one answer.
    phi = matrix([[2, 0, -1], [0, 1, 0], [-1, 0, 2]])
    shares = matrix([[0.7, 0.3, 0], [0.2, 0, 0.8]])
    read = variational.read_shares(variational.marginal(shares, phi), phi)
    torch.testing.assert_close(read, shares, rtol=0, atol=1e-9)
    # Two experts for three labels: (0.9 - t/2, 0.1 - t/2, t) for any t; t = 1/3 would be nearest to
    # uniform shares, and 0.2 is the largest that leaves no share negative.
    far = -torch.inf
    read = variational.read_shares(matrix([0.9, 0.1]), matrix([[0, far], [far, 0], [0, 0]]))
    close(read, [0.8, 0, 0.2])


# -- pruning ----------------------------------------------------------------------------------


def test_the_divergence_is_a_double_sum_without_the_clients_who_did_not_move_a_tensor():
    draw = torch.Generator().manual_seed(0)
    shapes = {"conv": (4, 3, 2, 2), "bias": (4,), "scale": ()}
    tensors = {n: torch.randn(5, *s, generator=draw).double() for n, s in shapes.items()}
    weights = torch.rand(5, generator=draw).double()
    tensors["bias"][2] = 0
    of_expert = divergence.directions(tree.map(lambda d: d.unsqueeze(1), tensors), weights[:, None])
    summed = tree.map(lambda x: x.sum(0), of_expert)
    torch.testing.assert_close(divergence.divergence(summed)[0], double_sum(tensors, weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_experts", [3, 4, 7, 10])
def test_eta_of_1_and_uniform_marginals_keep_everything(dtype, num_experts):
    shares = torch.rand(5, 10, generator=torch.Generator().manual_seed(1), dtype=dtype)
    shares = shares / shares.sum(1, keepdim=True)
    q = variational.marginal(shares, torch.zeros(10, num_experts, dtype=dtype))
    everything = torch.ones(5, num_experts, dtype=torch.bool)
    assert variational.experts_to_send(q, 1.0).all()
    assert variational.keep(q, everything, 1.0).all()


def test_a_client_sent_none_of_its_best_keeps_the_best_of_what_it_was_sent():
    q = matrix([0.1, 0.7, 0.2])
    received = torch.tensor([True, False, True])
    assert variational.keep(q, received, 1.0).tolist() == [False, False, True]
    both = vmap(lambda q, r: variational.keep(q, r, 1.0))(q[None], received[None])
    assert both.tolist() == [[False, False, True]]


# -- the server -------------------------------------------------------------------------------


def test_the_entropy_of_a_uniform_table_has_no_slope_and_that_of_a_certain_one_is_finite():
    prior = matrix([0.5, 0.5])
    uniform = variational.entropy_gradient(torch.zeros(2, 3, dtype=torch.float64), prior)
    close(uniform, [[0.0] * 3] * 2, places=15)
    certain = matrix([[1000, 0, 0], [1000, 0, 0]])
    assert variational.entropy_gradient(certain, prior).isfinite().all()


def test_running_statistics_are_averaged_without_adam():
    task, server = tiny_task(norm=True), ServerAdam(lr=0.1)
    before = tree.stack([task.init(seed) for seed in (0, 1)])
    # All numbers of two clients, of 1 and 3 examples, moved by 1 and by 2; nobody has expert 1.
    shift, weights = matrix([[1, 1], [2, 2]]), matrix([[1, 0], [1, 0]])
    returned = tree.map(lambda x: x + shift.reshape(2, 2, *[1] * (x.dim() - 1)), before)
    part = SimpleNamespace(total=lambda values: Total(values, np.array([1, 3])))
    found = variational.report(task, before, returned, weights, part, diverge=False)
    mean, active = variational.mean_difference(found), found.weights.sum > 0
    memory = server.init(task.trainable(before), 2)
    after, memory = variational.expert_step(server, task, before, mean, active, memory)
    for name, value in before.items():
        if "running" not in name:
            continue
        assert name not in memory["m"]["params"]
        torch.testing.assert_close(after[name][0], value[0] + 1.75)
        assert torch.equal(after[name][1], value[1])
