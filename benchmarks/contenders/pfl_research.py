"""pfl-research (Apple), FederatedAveraging on its SimulatedBackend.

Settings: "threads", one process whose operations use all cores; "processes", one process for each
core with one thread, its clients given out by size, as pfl does it over torch.distributed.
"""

import os
import socket
import subprocess
import sys

import numpy as np

from benchmarks.clock import Clock
from benchmarks.items import ITEMS, LR, SEED, Item

ROUNDS = 1_000_000  # more than anybody waits for
ADDRESSES, RANK = "PFL_WORKER_ADDRESSES", "PFL_WORKER_RANK"


def run(item: Item, setting: str, cores: int, clock: Clock) -> None:
    """Rounds of FedAvg until the clock says stop."""
    if setting == "threads" or cores == 1:
        _simulate(item, cores, clock)
        return
    addresses = ",".join(f"localhost:{port}" for port in _free_ports(cores))
    command = [sys.executable, "-m", __name__, item.name]
    others = [
        subprocess.Popen(command, env={**os.environ, ADDRESSES: addresses, RANK: str(rank)})
        for rank in range(1, cores)
    ]
    os.environ |= {ADDRESSES: addresses, RANK: "0"}
    try:
        _simulate(item, 1, clock)
    finally:
        for other in others:
            other.kill()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class CohortSampler:
    """Names the clients of a work item's rounds one after the other."""

    def __init__(self, item: Item):
        self.item, self.round, self.waiting = item, 0, []

    def __call__(self) -> int:
        """The next client."""
        if not self.waiting:
            self.waiting = self.item.clients(self.round).tolist()
            self.round += 1
        return self.waiting.pop(0)


def _simulate(item: Item, threads: int, clock: Clock | None) -> None:
    """This process's part; the one with a clock decides for all when to stop."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    from benchmarks import models

    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    np.random.seed(SEED)  # which pfl draws from; the same in all processes
    x, y = map(torch.from_numpy, item.data())
    sizes, offsets = item.sizes(), item.offsets()
    module = models.plain(item).train()
    module.loss = lambda x, y: torch.nn.functional.cross_entropy(module(x), y)
    module.metrics = lambda x, y: {"examples": Weighted(len(x), len(x))}

    def dataset(client: int) -> PyTorchTensorDataset:
        own = slice(offsets[client], offsets[client + 1])
        return PyTorchTensorDataset([x[own], y[own]], user_id=client)

    class Stop(TrainingProcessCallback):
        """Asks the clock after every round."""

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            """Whether to stop, and no metrics."""
            done = item.clients(central_iteration)
            more = float(clock.tick(int(sizes[done].sum()))) if clock else 0.0
            [more] = pytorch_ops.distributed.all_reduce([torch.tensor([more])])
            return more.item() == 0, Metrics()

    clients = FederatedDataset(dataset, CohortSampler(item), dict(enumerate(sizes.tolist())))
    if clock:
        clock.begin()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=ROUNDS,  # in the first round alone, which is not counted
            train_cohort_size=item.cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LR, local_batch_size=item.batch_size
        ),
        callbacks=[Stop()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    _simulate(ITEMS[sys.argv[1]], 1, None)
