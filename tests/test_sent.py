"""What the papers' models send: their golden numbers of floats, per client, round and direction.

That what a state shares is what is sent is a contract of all methods, in test_methods.py.
"""

from functools import partial

import pytest
from support import sgd

from fedlib import methods, models, tree
from fedlib.engine.task import Task

FEMNIST = {"num_classes": 62, "in_channels": 1, "side": 28}
GATE = {"gate": Task(lambda: models.load("pfedmoe_gate").build())}


def zoo(num_classes, size):
    return ("pfedmoe_cnn", {"num_classes": num_classes, "size": size})


# Method, further settings, model, the part of the state that is sent, numbers.
SENT = [
    # pFedMoE and its baselines, section 7; of cnn1, the largest, and cnn5, the smallest
    ("pfedmoe", GATE, zoo(10, "cnn5"), "small", 665_048),
    ("pfedmoe", GATE, zoo(100, "cnn5"), "small", 665_048),
    ("lg_fedavg", {}, zoo(10, "cnn5"), "head", 5_010),
    ("lg_fedavg", {}, zoo(100, "cnn5"), "head", 50_100),
    ("fedrep", {}, zoo(10, "cnn5"), "body", 665_048),
    ("fedavg", {}, zoo(10, "cnn1"), "params", 2_621_558),
    *(
        (name, params, zoo(classes, "cnn5"), "small", numbers)
        for name, params in (("fml", {}), ("fedkd", {"horizon": 1}), ("fedapen", {}))
        for classes, numbers in ((10, 670_058), (100, 715_148))
    ),
    # P, P - L and P minus the lower part, from the communication of FedMix's Table 1 (section 8)
    *(
        (name, {}, model, "params", numbers)
        for model, sizes in (
            (("lenet5", {"num_classes": 10}), (878_538, 878_528, 876_106)),
            (("lenet5", FEMNIST), (608_702, 608_640, 607_870)),
            (("resnet20", {"num_classes": 100}), (275_572, 275_472, 261_092)),
        )
        for name, numbers in zip(
            ("fedavg_adam", "biased_fedavg", "local_global"), sizes, strict=True
        )
    ),
]


@pytest.mark.parametrize(("name", "params", "model", "part", "numbers"), SENT)
def test_the_papers_models_send_as_many_numbers_as_their_specifications_count(
    name, params, model, part, numbers
):
    task = Task(partial(models.load(model[0]).build, **model[1]))
    method = methods.load(name)(task=task, local=sgd(), **params)
    assert tree.numel(getattr(method.init(1, 0), part)) == numbers
