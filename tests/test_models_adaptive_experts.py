"""The networks of Adaptive Expert Models. Sections: fedlib/papers/adaptive_experts/README.md."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import vmap

from fedlib import streams, tree
from fedlib.engine import ambient
from fedlib.engine.task import Batch, Task, log_probs
from fedlib.errors import ConfigError
from fedlib.models import gate_cnn, ifca_cnn, leaf_cnn
from fedlib.models.layers.conv import Dropout2d, LocalResponse
from fedlib.models.layers.initialise import convolution_weights
from fedlib.models.layers.random import Dropout

CIFAR, FEMNIST = {"in_channels": 3, "side": 32}, {"in_channels": 1, "side": 28}
GLOBAL = {"conv1": 128, "conv2": 32, "hidden": 1024, "dropout": 0.8}  # Table 1
LOCAL = {"conv1": 32, "conv2": 256, "hidden": 256, "dropout": 0.76}
GATE = {"conv1": 12, "conv2": 12, "hidden": 8, "dropout": 0.78}
SMALL = {"conv1": 4, "conv2": 3, "hidden": 6, "dropout": 0.5}
KEYS = torch.from_numpy(streams.keys(4, 0, "test") >> 1)

# One of each kind that is small enough to be evaluated often.
EVERY = {
    "leaf": partial(leaf_cnn.build, 10, **SMALL, **CIFAR),
    "leaf-femnist": partial(leaf_cnn.build, 62, **SMALL, **FEMNIST),
    "ifca": partial(ifca_cnn.build, 10, 0.5, conv1=6, conv2=5, hidden1=7, hidden2=8),
    "ifca-tf": partial(
        ifca_cnn.build, 10, 0.5, conv1=12, conv2=11, hidden1=7, hidden2=8, tf_equivalent=True
    ),
    "gate": partial(gate_cnn.build, 4, **SMALL, **CIFAR),
    "gate-of-two": partial(gate_cnn.build, 2, **SMALL, **FEMNIST),
    "gate-one-convolution": partial(gate_cnn.build, 3, **{**SMALL, "conv2": 0}, **FEMNIST),
}
every = pytest.mark.parametrize("name", EVERY)


def shape_of(name):
    return (1, 28, 28) if EVERY[name].keywords.get("side") == 28 else (3, 32, 32)


def inputs(name, count=5):
    return torch.randn(count, *shape_of(name), generator=torch.Generator().manual_seed(3))


def batch_of(x, key=KEYS[0], train=False):
    return Batch(x, torch.zeros(len(x)), torch.arange(len(x)), key=key, train=train)


def numel(module):
    return sum(p.numel() for p in module.parameters())


# Section 5.5


def conv(inputs, outputs):
    return 5 * 5 * inputs * outputs + outputs


def dense(inputs, outputs):
    return inputs * outputs + outputs


@pytest.mark.parametrize(
    ("build", "terms", "total"),
    [
        # 32 -> 28 -> 14 -> 10 -> 5 pixels a side.
        (
            partial(leaf_cnn.build, 10, **GLOBAL, **CIFAR),
            (conv(3, 128), conv(128, 32), dense(32 * 5 * 5, 1024), dense(1024, 10)),
            942_634,
        ),
        (
            partial(leaf_cnn.build, 10, **LOCAL, **CIFAR),
            (conv(3, 32), conv(32, 256), dense(256 * 5 * 5, 256), dense(256, 10)),
            1_848_714,
        ),
        # 28 -> 24 -> 12 -> 8 -> 4.
        (
            partial(leaf_cnn.build, 62, 32, 64, 2048, 0.659, **FEMNIST),
            (conv(1, 32), conv(32, 64), dense(64 * 4 * 4, 2048), dense(2048, 62)),
            2_278_334,
        ),
        # LEAF's own, padded: 28 -> 14 -> 7.
        (
            partial(leaf_cnn.build, 62, 32, 64, 2048, 0.0, **FEMNIST, padding=2),
            (conv(1, 32), conv(32, 64), dense(64 * 7 * 7, 2048), dense(2048, 62)),
            6_603_710,
        ),
        (
            partial(ifca_cnn.build, 10, 0.216),
            (conv(3, 64), conv(64, 64), dense(1600, 384), dense(384, 194), dense(194, 10)),
            798_752,
        ),
        (
            partial(gate_cnn.build, 10, 64, 16, 256, 0.275, **FEMNIST),
            (conv(1, 64), conv(64, 16), dense(16 * 4 * 4, 256), dense(256, 10)),
            95_642,
        ),
        (
            partial(gate_cnn.build, 3, 16, 16, 128, 0.416, **CIFAR),
            (conv(3, 16), conv(16, 16), dense(16 * 5 * 5, 128), dense(128, 3)),
            59_347,
        ),
    ],
    ids="global local femnist leaf-padded rotated gate-femnist gate-rotated".split(),
)
def test_a_network_has_the_number_of_parameters_of_the_specification(build, terms, total):
    assert numel(build()) == sum(terms) == total


@pytest.mark.parametrize(
    ("experts", "outputs", "total"),
    [(2, 1, 6_941), (3, 3, 6_959), (4, 4, 6_968), (7, 7, 6_995), (10, 10, 7_022)],
)
def test_a_gate_has_an_output_per_expert_and_a_single_one_for_two(experts, outputs, total):
    gate = gate_cnn.build(experts, **GATE, **CIFAR)
    terms = conv(3, 12), conv(12, 12), dense(12 * 5 * 5, 8), dense(8, outputs)
    assert numel(gate) == sum(terms) == total
    assert gate.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, outputs)


@pytest.mark.parametrize(("images", "left"), [(CIFAR, 14), (FEMNIST, 12)])
def test_a_gate_without_its_second_convolution_flattens_the_first(images, left):
    gate = gate_cnn.build(3, conv1=16, conv2=0, hidden=4, dropout=0.5, **images)
    first = images["in_channels"]
    assert numel(gate) == conv(first, 16) + dense(16 * left * left, 4) + dense(4, 3)


# Sections 5.1 to 5.3: the same functions as torch's own layers in the published order


def published(name):
    """(layers of the convolutions, layers after flattening) in the order of the specification."""
    relu, pool, drop = nn.ReLU(), nn.MaxPool2d(2, 2), nn.Dropout(0.5)
    if name.startswith("leaf"):
        first, classes, side = (1, 62, 4) if "femnist" in name else (3, 10, 5)
        return [
            *(nn.Conv2d(first, 4, 5), relu, pool, nn.Conv2d(4, 3, 5), relu, pool),
            *(nn.Flatten(), nn.Linear(3 * side**2, 6), relu, drop, nn.Linear(6, classes)),
        ]
    if name.startswith("ifca"):
        one, two = (12, 11) if "tf" in name else (6, 5)
        norm = nn.LocalResponseNorm(4, alpha=0.001 / 9, beta=0.75, k=1)
        if "tf" in name:
            norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)
        return [
            *(nn.Conv2d(3, one, 5), relu, pool, norm, nn.Conv2d(one, two, 5), relu, norm, pool),
            *(nn.Flatten(), nn.Linear(25 * two, 7), relu, drop, nn.Linear(7, 8), relu),
            nn.Linear(8, 10),
        ]
    if name == "gate-one-convolution":
        convolutions, flat, outputs = [nn.Conv2d(1, 4, 5), relu, pool], 4 * 12**2, 3
    else:
        first, flat, outputs = (3, 75, 4) if name == "gate" else (1, 48, 1)
        dropped = nn.Conv2d(4, 3, 5), nn.Dropout2d(0.5)
        convolutions = [nn.Conv2d(first, 4, 5), relu, pool, *dropped, relu, pool]
    return [*convolutions, nn.Flatten(), nn.Linear(flat, 6), relu, drop, nn.Linear(6, outputs)]


@every
def test_a_network_computes_what_torchs_layers_do_in_the_published_order(name):
    params, x = Task(EVERY[name]).init(0), inputs(name)
    last = list(params)[-1]
    params[last] = params[last] - Task(EVERY[name]).logits(params, batch_of(x)).mean(
        0
    )  # logits of either sign
    plain = nn.Sequential(*published(name)).eval()
    for theirs, value in zip(plain.parameters(), params.values(), strict=True):
        theirs.data.copy_(value)
    expected = plain(x)
    assert (expected < 0).any() and (expected > 0).any()
    # Sums over a few thousand terms in another order, in float32.
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(Task(EVERY[name]).logits(params, batch_of(x)), expected, **close)
    cut_off = Task(partial(EVERY[name], logit_relu=True)).logits(params, batch_of(x))
    torch.testing.assert_close(cut_off, expected.relu(), **close)


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_local_responses_are_those_of_torch(size):
    x = torch.randn(2, 7, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = nn.LocalResponseNorm(size, alpha=0.3, beta=0.75, k=1)(x)
    torch.testing.assert_close(LocalResponse(size, 0.3, 0.75)(x), expected)


def test_the_window_of_tensorflow_has_four_channels_on_either_side_and_an_alpha_of_its_own():
    # y_c = x_c / (1 + alpha * sum over |d - c| <= 4 of x_d^2)^beta, alpha = 0.001 / 9 (X14).
    x = 30 * torch.rand(
        1, 12, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    flat = x.flatten().tolist()
    expected = []
    for c in range(12):
        total = sum(flat[d] ** 2 for d in range(max(0, c - 4), min(12, c + 5)))
        expected.append(flat[c] / (1 + 0.001 / 9 * total) ** 0.75)
    got = LocalResponse(**ifca_cnn.TENSORFLOW_WINDOW)(x).flatten()
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("logit_relu", [False, True])
def test_the_single_logit_of_two_experts_is_that_of_the_local_one(logit_relu):
    task = Task(partial(EVERY["gate-of-two"], logit_relu=logit_relu))
    params = task.init(0)
    params["head.1.bias"] -= 1
    logit = task.logits(params, batch_of(inputs("gate-of-two")))
    weights = log_probs(logit).exp()
    torch.testing.assert_close(weights[:, 1:], logit.sigmoid())
    torch.testing.assert_close(weights.sum(1), torch.ones(5))
    assert (weights[:, 1] >= 0.5).all().item() is logit_relu  # X4


@pytest.mark.parametrize("build", [leaf_cnn.build, gate_cnn.build])
def test_images_that_are_too_small_without_padding_are_refused(build):
    with pytest.raises(ConfigError, match="8 x 8 pixels are too small for 2 convolutions .* 2 or"):
        build(3, **SMALL, in_channels=1, side=8)
    assert build(3, **SMALL, in_channels=1, side=8, padding=2).eval()(torch.zeros(1, 1, 8, 8)).any()


# Dropout


@every
def test_masks_are_a_function_of_the_key_in_training_and_off_in_evaluation(name):
    task = Task(EVERY[name])
    params, x = task.init(0), inputs(name, 20)
    train = [task.logits(params, batch_of(x, key, train=True)) for key in KEYS[[0, 0, 1]]]
    assert torch.equal(train[0], train[1])
    assert not torch.allclose(train[0], train[2])
    assert torch.equal(*(task.logits(params, batch_of(x, key)) for key in KEYS[:2]))


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_channels_are_dropped_whole_and_the_rest_is_scaled(p):
    x = torch.rand(100, 40, 3, 2, generator=torch.Generator().manual_seed(0)) + 1
    with ambient.dropout_key(KEYS[0]):
        dropped = Dropout2d(p)(x)
        other = Dropout2d(p, salt=1)(x)
    kept = dropped != 0
    assert torch.equal(kept, kept[:, :, :1, :1].expand_as(kept))
    torch.testing.assert_close(dropped[kept], x[kept] / (1 - p))
    # Binomial of 4,000 channels; five deviations.
    assert abs(kept[:, :, 0, 0].double().mean() - (1 - p)) < 5 * (p * (1 - p) / 4000) ** 0.5
    assert not torch.equal(other != 0, kept)
    assert len(torch.unique(kept[:, :, 0, 0], dim=0)) > 1  # examples differ


def test_channels_are_not_dropped_in_evaluation_or_with_a_share_of_zero():
    x = torch.ones(2, 3, 4, 4)
    assert Dropout2d(0.5).eval()(x) is x
    assert Dropout2d(0.0)(x) is x


def test_dropping_channels_after_the_pool_is_the_same_as_before_it_and_before_the_relu():
    x = torch.randn(6, 5, 10, 10, generator=torch.Generator().manual_seed(0))
    pool, drop = nn.MaxPool2d(2), Dropout2d(0.5)
    with ambient.dropout_key(KEYS[0]):
        assert torch.equal(pool(drop(x).relu()), drop(pool(x)).relu())


def test_the_two_dropouts_of_a_gate_have_masks_of_their_own():
    drops = [m for m in EVERY["gate"]().modules() if isinstance(m, Dropout)]
    assert [type(m) for m in drops] == [Dropout2d, Dropout]
    assert len({m.salt for m in drops}) == 2


@every
def test_clients_in_one_batched_call_get_what_each_gets_alone(name):
    task = Task(EVERY[name], dtype=torch.float64)
    clients = [task.init(seed) for seed in range(3)]
    x = inputs(name, 12).double().unflatten(0, (3, 4))

    def gradient(params, x, key):
        batch = batch_of(x, key, train=True)
        return torch.func.grad(lambda p: task.log_probs(p, batch)[:, 0].mean())(params)

    with ambient.stacked_experts(True):  # as in the batched executor
        together = vmap(gradient)(tree.stack(clients), x, KEYS[:3])
    for c, params in enumerate(clients):
        alone = gradient(params, x[c], KEYS[c])
        for entry, value in alone.items():
            torch.testing.assert_close(together[entry][c], value)


# Section 5.4


def test_official_initial_values_are_glorot_weights_and_biases_of_one_hundredth():
    for build in EVERY.values():
        drawn, torchs = (Task(partial(build, init=init)).init(1) for init in ("official", "torch"))
        for entry, value in drawn.items():
            if value.dim() == 4:  # conv: uniform on +-sqrt(6 / (fan in + fan out))
                bound = (6 / (25 * (value.shape[0] + value.shape[1]))) ** 0.5
                assert value.abs().max() <= bound
                # Uniform on +-b has a deviation of b / sqrt(3); hundreds of values or more.
                assert value.std() == pytest.approx(bound / 3**0.5, rel=0.25)
                assert not torch.equal(value, torchs[entry])
                bias = entry.replace("weight", "bias")
                fan_in = value[0].numel()
                assert 0 < drawn[bias].abs().max() <= fan_in**-0.5  # torch's own bound
            elif value.dim() == 2:
                bias = entry.replace("weight", "bias")
                assert torch.equal(drawn[bias], torch.full_like(drawn[bias], 0.01))
                assert value.abs().max() <= value.shape[1] ** -0.5  # torch's own bound


def test_torchs_initial_values_are_those_of_its_layers():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        ours = leaf_cnn.build(10, **SMALL, **CIFAR, init="torch")
        torch.manual_seed(5)
        plain = nn.Sequential(*published("leaf"))
    assert all(map(torch.equal, ours.parameters(), plain.parameters()))


def test_an_unknown_init_is_refused():
    with pytest.raises(ConfigError, match="no init 'he'; choose one of official, torch"):
        leaf_cnn.build(10, **SMALL, init="he")


@every
def test_clusters_may_differ_in_their_convolution_weights_alone(name):
    task = Task(EVERY[name])
    before = torch.get_rng_state()
    names = convolution_weights(task.build)
    assert torch.equal(torch.get_rng_state(), before)
    one, two = task.init(0), task.init(1)
    assert names == {entry for entry, value in one.items() if value.dim() == 4}
    cluster = {entry: (two if entry in names else one)[entry] for entry in one}
    differ = {entry for entry in one if not torch.equal(cluster[entry], one[entry])}
    assert differ == names
    assert len(names) == (1 if name == "gate-one-convolution" else 2)
