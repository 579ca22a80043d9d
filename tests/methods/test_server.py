"""The server's Adam against `torch.optim.Adam`, and experts for which nothing came back."""

import torch
from reference import assert_params

from fedlib import tree
from fedlib.methods.parts.server_adam import ServerAdam

SHAPES = {"body.weight": (3, 4), "body.bias": (3,)}


def drawn(seed, rows=()):
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.randn(*rows, *s, generator=draw).double() for n, s in SHAPES.items()}


def torch_adam(start, differences, **settings):
    """Parameters after steps of `torch.optim.Adam` with these gradients."""
    params = {name: torch.nn.Parameter(value.clone()) for name, value in start.items()}
    optimiser = torch.optim.Adam(params.values(), **settings)
    for difference in differences:
        for name, p in params.items():
            p.grad = difference[name].clone()
        optimiser.step()
    return {name: p.detach() for name, p in params.items()}


def test_every_expert_has_an_adam_of_its_own_and_waits_where_nothing_came_back():
    rows, active = 3, [[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 1, 1]]
    server, params = ServerAdam(lr=0.01), drawn(0, (rows,))
    memory = server.init(params, num_experts=rows)
    for seed, mask in enumerate(active, start=1):
        mask = torch.tensor(mask).bool()
        # 0 / 0, as the mean over nobody would be, must not get anywhere.
        difference = tree.map(lambda x, m=mask: x.clone(), drawn(seed, (rows,)))
        for x in difference.values():
            x[~mask] = torch.nan
        before = params, memory
        params, memory = server.step(params, difference, memory, mask)
        for now, then in zip(tree.leaves((params, memory)), tree.leaves(before), strict=True):
            assert torch.equal(now[~mask], then[~mask])
    for e in range(rows):
        mine = [tree.take(drawn(s, (rows,)), e) for s, m in enumerate(active, start=1) if m[e]]
        start = tree.take(drawn(0, (rows,)), e)
        # Float64, a few operations in another order.
        assert_params(tree.take(params, e), torch_adam(start, mine, lr=0.01), 1e-12, 1e-14)
    assert memory["t"].tolist() == [3, 3, 2]
