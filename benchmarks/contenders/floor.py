"""The floor: one centralised loop over the same examples, without clients, tuned like our engine.

Our engine's layers and memory layout, its gradients and its way to take a step; operations use all
cores; the batch size is the fastest of several, whatever it does to the accuracy.
"""

import time
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.clock import Clock
from benchmarks.items import LR, SEED, Item
from fedlib.engine import ambient
from fedlib.engine.device import channels_last

BATCH_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TUNING = 0.3  # seconds for each batch size


def run(item: Item, setting: str, cores: int, clock: Clock) -> dict:
    """Epochs until the clock says stop -> the batch size that was the fastest."""
    torch.set_num_threads(cores)
    torch.manual_seed(SEED)
    module = models.fast(item).train()
    x, y = map(torch.from_numpy, item.data())
    if models.convolves(module):
        x = channels_last(x)
    step = partial(_step, module, list(module.parameters()))
    batch_size = fastest(step, x, y)
    more = True
    clock.begin()
    while more:
        order = torch.randperm(len(x))
        for start in range(0, len(x), batch_size):
            batch = order[start : start + batch_size]
            step(x[batch], y[batch])
        more = clock.tick(len(x))
    return {"batch_size": batch_size}


def fastest(step, x: Tensor, y: Tensor) -> int:
    """The batch size with the most examples per second; stops where larger ones are slower."""
    rates = {}
    for size in [size for size in BATCH_SIZES if size < len(x)] or [len(x)]:
        batch = torch.randperm(len(x))[:size]
        step(x[batch], y[batch])  # the first is slower
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < TUNING:
            step(x[batch], y[batch])
            steps += 1
        rates[size] = size * steps / (time.perf_counter() - begin)
        if rates[size] < 0.8 * max(rates.values()):
            break
    return max(rates, key=rates.get)


def _step(module: nn.Module, params: list[Tensor], x: Tensor, y: Tensor) -> None:
    with ambient.dropout_key(torch.tensor(SEED)):
        loss = nn.functional.cross_entropy(module(x), y)
    grads = torch.autograd.grad(loss, params)
    with torch.no_grad():
        torch._foreach_add_(params, grads, alpha=-LR)
