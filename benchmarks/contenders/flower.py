"""Flower's simulation engine: a ServerApp with FedAvg, a ClientApp on Ray, an actor for each core.

The server names the client to train in its message, so that cohorts are those of the work item;
every actor holds the whole data set once.
"""

import functools
import time

from benchmarks.clock import Clock
from benchmarks.items import ITEMS, SEED, Item


def run(item: Item, setting: str, cores: int, clock: Clock) -> None:
    """Rounds of FedAvg until the clock says stop."""
    import torch
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks import models

    client, server = ClientApp(), ServerApp()
    name = item.name  # of what goes to the actors, the smallest possible

    @client.train()
    def train(message, context):
        return _train(name, message)

    @server.main()
    def main(grid, context):
        torch.manual_seed(SEED)
        strategy = FedAvg(fraction_evaluate=0.0, weighted_by_key="num-examples")
        arrays = ArrayRecord(models.plain(item).state_dict())
        while len(nodes := sorted(grid.get_node_ids())) < item.num_clients:
            time.sleep(0.1)  # they register one after the other
        clock.begin()
        number, more = 0, True
        while more:
            messages = []
            for chosen in item.clients(number).tolist():
                config = ConfigRecord({"client": chosen})
                content = RecordDict({"arrays": arrays, "config": config})
                messages.append(Message(content, nodes[chosen], MessageType.TRAIN))
            replies = grid.send_and_receive(messages)
            arrays, _ = strategy.aggregate_train(number, replies)
            number += 1
            more = clock.tick(int(item.sizes()[item.clients(number - 1)].sum()))

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=item.num_clients,
        backend_config={
            "client_resources": resources,
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )


@functools.cache
def _local(name: str) -> tuple:
    """(model, x, y, offsets) of a work item, once in every actor."""
    import torch

    from benchmarks import models

    torch.set_num_threads(1)
    item = ITEMS[name]
    return models.plain(item).train(), *map(torch.from_numpy, item.data()), item.offsets()


def _train(name: str, message):
    """One epoch on the client that the message names."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    from benchmarks.contenders import plain

    module, x, y, offsets = _local(name)
    client = message.content["config"]["client"]
    own = slice(offsets[client], offsets[client + 1])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    plain.train(module, x[own], y[own], ITEMS[name].batch_size)
    metrics = MetricRecord({"num-examples": int(own.stop - own.start)})
    content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
