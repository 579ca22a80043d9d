"""FedJAX (Google): its FedAvg with the compiling backend, on networks written in Haiku.

A step is compiled for every size of a batch. Warm-up rounds see every client, so that this is not
measured; compiled steps are kept in the peer's environment from one process to the next.
"""

import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.clock import Clock
from benchmarks.items import LR, SEED, Item

CACHE = Path(sys.prefix) / "compiled"


def run(item: Item, setting: str, cores: int, clock: Clock) -> None:
    """Rounds of FedAvg until the clock says stop."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(CACHE)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    import jax

    jax.tree_map = jax.tree_util.tree_map  # its old name, which FedJAX uses and JAX has dropped
    import fedjax

    model = _model(item)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(LR),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=item.batch_size, num_epochs=1, seed=SEED),
    )
    x, y = item.data()
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))  # JAX has channels last
    sizes, offsets = item.sizes(), item.offsets()
    shards = [
        fedjax.ClientDataset({"x": x[a:b], "y": y[a:b].astype(np.int32)})
        for a, b in zip(offsets, offsets[1:], strict=False)
    ]

    def one_round(state, clients, number):
        keys = jax.random.split(jax.random.PRNGKey(number), len(clients))
        cohort = [(c, shards[c], key) for c, key in zip(clients.tolist(), keys, strict=True)]
        state, _ = algorithm.apply(state, cohort)
        return jax.block_until_ready(state)

    with fedjax.for_each_client_backend("jit"):
        state = algorithm.init(model.init(jax.random.PRNGKey(SEED)))
        state = one_round(state, np.arange(item.num_clients), 0)
        clock.begin()
        number, more = 0, True
        while more:
            clients = item.clients(number)
            state = one_round(state, clients, number)
            number += 1
            more = clock.tick(int(sizes[clients].sum()))


def _model(item: Item):
    """The network of a work item, with its loss, as FedJAX wants it."""
    import fedjax
    import haiku as hk
    import jax

    def convolution(channels: int, padding: str) -> list:
        pool = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return [hk.Conv2D(channels, 5, padding=padding), jax.nn.relu, pool]

    def network(x):
        last = hk.Linear(item.num_classes)
        layers = {
            "emnist_cnn": lambda: [
                *convolution(32, "VALID"),
                *convolution(64, "VALID"),
                hk.Flatten(),
                hk.Linear(2048),
                jax.nn.relu,
            ],
            "mlp": lambda: [hk.Linear(200), jax.nn.relu],
            "linear": lambda: [],
            "lenet5": lambda: [
                *convolution(6, "SAME"),
                *convolution(16, "VALID"),
                hk.Flatten(),
                hk.Linear(120),
                jax.nn.relu,
                hk.Linear(84),
                jax.nn.relu,
            ],
        }
        return hk.Sequential([*layers[item.model](), last])(x)

    shape = item.shape if len(item.shape) == 1 else (*item.shape[1:], item.shape[0])
    return fedjax.create_model_from_haiku(
        transformed_forward_pass=hk.transform(lambda batch: network(batch["x"])),
        sample_batch={"x": np.zeros((1, *shape), np.float32), "y": np.zeros(1, np.int32)},
        train_loss=lambda batch, preds: fedjax.metrics.unreduced_cross_entropy_loss(
            batch["y"], preds
        ),
        eval_metrics={"loss": fedjax.metrics.CrossEntropyLoss()},
    )
