"""FedEM as its official code goes about it: expert after expert, each with passes of its own.

For every client an E-step with each expert over the client's examples, then an epoch of each
expert, its losses weighted. Leaner than the official code (omarfoq/FedEM, client.py and
learners/learner.py): data in memory instead of a DataLoader, no copy of the experts per client.
"""

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.clock import Clock
from benchmarks.items import LR, SEED, Item

EVALUATED = 512  # examples in a forward pass of the E-step


def run(item: Item, setting: str, cores: int, clock: Clock) -> None:
    """Rounds of FedEM until the clock says stop."""
    torch.set_num_threads(cores)
    torch.manual_seed(SEED)
    x, y = map(torch.from_numpy, item.data())
    sizes, offsets = item.sizes(), item.offsets()
    modules = [models.plain(item).train() for _ in range(item.num_experts)]
    servers = [{n: v.clone() for n, v in m.state_dict().items()} for m in modules]
    pi = torch.full((item.num_clients, item.num_experts), 1 / item.num_experts)
    clock.begin()
    number, more = 0, True
    while more:
        clients = item.clients(number)
        total = sizes[clients].sum()
        averages = [{n: torch.zeros_like(v) for n, v in server.items()} for server in servers]
        for client in clients:
            own = slice(offsets[client], offsets[client + 1])
            for module, server in zip(modules, servers, strict=True):
                module.load_state_dict(server)
            q = responsibilities(modules, x[own], y[own], pi[client])
            pi[client] = q.mean(0)
            for expert, (module, average) in enumerate(zip(modules, averages, strict=True)):
                train(module, x[own], y[own], q[:, expert], item.batch_size)
                for name, value in module.state_dict().items():
                    average[name] += value * (sizes[client] / total)
        servers = averages
        number += 1
        more = clock.tick(int(total))


@torch.no_grad()
def responsibilities(modules: list[nn.Module], x: Tensor, y: Tensor, pi: Tensor) -> Tensor:
    """How probable each expert is, given each example [N, ...] and weights [E] -> [N, E]"""
    columns = []
    for module in modules:
        pieces = zip(x.split(EVALUATED), y.split(EVALUATED), strict=True)
        losses = [nn.functional.cross_entropy(module(a), b, reduction="none") for a, b in pieces]
        columns.append(torch.cat(losses))
    return torch.softmax(pi.log() - torch.stack(columns, 1), dim=1)


def train(module: nn.Module, x: Tensor, y: Tensor, weights: Tensor, batch_size: int) -> None:
    """One epoch of one expert, losses weighted [N], in place."""
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)
    order = torch.randperm(len(x))
    for start in range(0, len(x), batch_size):
        batch = order[start : start + batch_size]
        optimiser.zero_grad()
        losses = nn.functional.cross_entropy(module(x[batch]), y[batch], reduction="none")
        (losses @ weights[batch] / len(batch)).backward()
        optimiser.step()
