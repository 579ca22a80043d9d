"""FedAvg as one writes it down: one `nn.Module`, a `torch.optim.SGD` for each client.

One process; every operation uses all cores. Data is in memory, a batch is an index.
"""

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.clock import Clock
from benchmarks.items import LR, SEED, Item


def run(item: Item, setting: str, cores: int, clock: Clock) -> None:
    """Rounds of FedAvg until the clock says stop."""
    torch.set_num_threads(cores)
    torch.manual_seed(SEED)
    module = models.plain(item).train()
    x, y = map(torch.from_numpy, item.data())
    sizes, offsets = item.sizes(), item.offsets()
    server = {name: value.clone() for name, value in module.state_dict().items()}
    clock.begin()
    number, more = 0, True
    while more:
        clients = item.clients(number)
        total = sizes[clients].sum()
        average = {name: torch.zeros_like(v, dtype=torch.float32) for name, v in server.items()}
        for client in clients:
            module.load_state_dict(server)
            own = slice(offsets[client], offsets[client + 1])
            train(module, x[own], y[own], item.batch_size)
            for name, value in module.state_dict().items():
                average[name] += value * (sizes[client] / total)
        server = {name: average[name].to(value.dtype) for name, value in server.items()}
        number += 1
        more = clock.tick(int(total))


def train(module: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> None:
    """One epoch on one client's examples [N, ...], in place."""
    optimiser = torch.optim.SGD(module.parameters(), lr=LR)
    order = torch.randperm(len(x))
    for start in range(0, len(x), batch_size):
        batch = order[start : start + batch_size]
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
        optimiser.step()
