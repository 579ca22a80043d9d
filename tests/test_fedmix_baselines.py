"""FedAvg with Adam on the server, biased FedAvg and Local/Global: against loops of `nn.Module`,
`torch.optim.SGD` and `torch.optim.Adam`, limit cases, protocols and what is sent.
"""

from dataclasses import replace

import numpy as np
import pytest
import support
import torch
from reference import (
    SOLVER,
    Reference,
    assert_params,
    cross_entropy_of,
    descent,
    executors,
    module_of,
)
from support import TinyNet, assert_close, cohort_of, sgd, tiny_task, toy_federation
from torch.nn.functional import cross_entropy

from fedlib import methods, models, tree
from fedlib.engine.batches import draw_batches
from fedlib.engine.task import Task
from fedlib.federation import Federation, Split
from fedlib.methods.fedavg_adam import FedAvgAdam
from fedlib.methods.local_global import LocalGlobal

SIZES = (7, 12, 6, 10, 11)  # the last client is unseen; no batch of 4 leaves one alone
COHORTS = ([0, 2], [1], [2, 1])  # client 3 never takes part
SERVER_LR = 0.02
BIAS = "head.1.bias"  # of the tiny network
# Name, hyper-parameters, how the names of private entries begin.
CASES = {
    "fedavg_adam": ("fedavg_adam", {}, ()),
    "biased_fedavg": ("biased_fedavg", {"private": BIAS}, (BIAS,)),
    "local_global": ("local_global", {}, ("body.0.",)),
    "local_global, statistics too": (
        "local_global",
        {"private": "body.1"},
        ("body.0.", "body.1."),
    ),
    "biased_fedavg, faster": ("biased_fedavg", {"private": BIAS, "private_lr_scale": 3.0}, (BIAS,)),
    "local_global, slower": ("local_global", {"private_lr_scale": 0.5}, ("body.0.",)),
}
every_case = pytest.mark.parametrize("case", CASES)


def make(case, local=SOLVER, task=None, **changes):
    name, params, _ = CASES[case]
    task = task or tiny_task(norm=True)
    params = {"server_lr": SERVER_LR} | params | changes
    return methods.load(name)(task=task, local=local, **params)


def run(method, federation, rounds=COHORTS, **options):
    return support.run(method, federation, rounds, **options)


def start_of(case, task):
    """Parameters before the first round: those drawn, with a private bias of zero."""
    drawn = task.init(0)
    return drawn | {BIAS: torch.zeros(3).double()} if case.startswith("biased") else drawn


# -- by hand ------------------------------------------------------------------------------------


def trained_by_hand(case, federation, task):
    """(server's module, every client's module) after the rounds of `COHORTS`, client by client."""
    hand, private = Reference(federation), CASES[case][2]
    clients = range(federation.num_clients)
    shared_net = module_of(task, start_of(case, task))
    nets = {c: module_of(task, start_of(case, task)) for c in clients}
    rate = 0.1 * CASES[case][1].get("private_lr_scale", 1.0)  # of SOLVER

    def groups(net):
        own = [p for n, p in net.named_parameters() if n.startswith(private)]
        rest = [p for n, p in net.named_parameters() if not n.startswith(private)]
        return [{"params": rest}, *([{"params": own, "lr": rate}] if own else [])]

    solvers = {c: [descent(groups(net), SOLVER)] for c, net in nets.items()}
    shared = {n: p for n, p in shared_net.named_parameters() if not n.startswith(private)}
    adam = torch.optim.Adam(shared.values(), lr=SERVER_LR)

    def client(c, number):
        own = {n: v for n, v in nets[c].state_dict().items() if n.startswith(private)}
        nets[c].load_state_dict({**shared_net.state_dict(), **own})
        hand.fit(c, number, solvers[c], cross_entropy_of(nets[c]))

    def server(ids):
        average = hand.average({c: nets[c] for c in ids})
        for name, w in shared.items():
            w.grad = w.detach() - average[name]
        adam.step()
        for name, buffer in shared_net.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(average[name])

    hand.rounds(client, server, COHORTS)
    return shared_net, nets


@executors
@every_case
def test_rounds_are_those_of_an_independent_loop(case, executor):
    federation, task = toy_federation(SIZES), tiny_task(norm=True)
    server, nets = trained_by_hand(case, federation, task)
    state = run(make(case, task=task), federation, executor=executor)
    private = {n for n in task.init(0) if n.startswith(CASES[case][2])}
    assert state.params.keys() == task.init(0).keys() - private
    assert state.private.keys() == private
    theirs = server.state_dict()
    assert_params(state.params, {name: theirs[name] for name in state.params})
    for c, net in nets.items():
        theirs = net.state_dict()
        assert_params(tree.take(state.private, c), {name: theirs[name] for name in private})


@every_case
def test_who_never_took_part_keeps_the_common_start(case):
    federation, task = toy_federation(SIZES), tiny_task(norm=True)
    state, start = run(make(case), federation), start_of(case, task)
    for name, rows in state.private.items():
        assert torch.equal(rows[3], start[name]) and torch.equal(rows[4], start[name])
        assert not torch.equal(rows[0], start[name])


# -- limit cases --------------------------------------------------------------------------------


@executors
def test_with_nothing_private_local_global_is_fedavg_with_adam(executor):
    class Nothing(LocalGlobal):
        def is_private(self, name):
            return name == "head.bias.of.another.model"

        def __post_init__(self):
            FedAvgAdam.__post_init__(self)

    federation, task = toy_federation(SIZES), tiny_task(norm=True, dropout=0.3)
    shared = make("fedavg_adam", task=task)
    method = Nothing(task=task, local=SOLVER, server_lr=SERVER_LR)
    ours = run(method, federation, executor=executor)
    theirs = run(shared, federation, executor=executor)
    for a, b in zip(tree.leaves(ours), tree.leaves(theirs), strict=True):
        assert torch.equal(a, b)


@every_case
def test_clients_that_do_not_move_leave_the_server_where_it_is(case):
    federation = toy_federation(SIZES)
    idle = sgd(lr=0.0)
    method = make(case, local=idle, task=tiny_task())
    start, state = method.init(federation.num_clients, 0), run(method, federation)
    for a, b in zip(
        tree.leaves((start.params, start.private)),
        tree.leaves((state.params, state.private)),
        strict=True,
    ):
        assert torch.equal(a, b)


@every_case
def test_after_a_round_clients_that_do_not_move_let_the_momentum_go_on(case):
    federation, task = toy_federation(SIZES), tiny_task()
    moving = make(case, local=sgd(), task=task)
    first = run(moving, federation, COHORTS[:1])
    # What was returned, from the first moments: m = (1 - beta1) g.
    g = tree.map(lambda m: m / (1 - 0.9), first.adam["m"]["params"])
    idle = replace(moving, local=sgd(lr=0.0))
    second = idle.round(first, cohort_of(task, federation, COHORTS[1], round=1))
    for name, before in first.params.items():
        m, v = 0.9 * 0.1 * g[name], 0.999 * 0.001 * g[name] ** 2
        step = SERVER_LR * (m / (1 - 0.9**2)) / ((v / (1 - 0.999**2)).sqrt() + 1e-8)
        torch.testing.assert_close(second.params[name], before - step, rtol=1e-10, atol=1e-12)
    assert_close(second.private, first.private, 0)


@every_case
def test_the_first_step_has_the_length_of_the_servers_rate_everywhere(case):
    federation = toy_federation(SIZES)
    method = make(case, local=sgd(), task=tiny_task(norm=True))
    start, after = method.init(federation.num_clients, 0), run(method, federation, COHORTS[:1])
    for name in method.task.trainable(start.params):
        g = after.adam["m"]["params"][name].abs() / (1 - 0.9)
        moved = (after.params[name] - start.params[name]).abs()
        torch.testing.assert_close(moved, SERVER_LR * g / (g + 1e-8), rtol=1e-9, atol=1e-12)
        assert (g > 1e-6).all()  # so all of these are close to the rate


@every_case
def test_absent_clients_count_for_nothing_in_any_aggregation(case):
    federation, method = toy_federation(SIZES), make(case)
    damped, other = (run(method, federation, aggregation=a) for a in ("damped", "renormalised"))
    for a, b in zip(tree.leaves(damped), tree.leaves(other), strict=True):
        assert torch.equal(a, b)


# -- protocols ----------------------------------------------------------------------------------


def test_protocols_move_into_training_by_name():
    for case in CASES:
        method = make(case, curves=["new_shard"])
        assert method.curves == ("new_shard",)
        assert [*method.protocols["seen"]] == ["default", "new_shard"]
        assert [*method.final_protocols["seen"]] == ["finetuned"]
        assert [*method.protocols["unseen"]] == ["default", "new_shard"]
        assert method.final_protocols["unseen"] == {}
        method = make(case)
        assert [*method.protocols["seen"]] == [*method.protocols["unseen"]] == ["default"]
        assert [*method.final_protocols["seen"]] == ["new_shard", "finetuned"]
        assert [*method.final_protocols["unseen"]] == ["new_shard"]


@executors
@every_case
def test_fine_tuned_models_are_those_of_a_round_that_leaves_no_trace(case, executor):
    federation, method = toy_federation(SIZES), make(case)
    state = run(method, federation, executor=executor)
    cohort = cohort_of(method.task, federation, executor=executor, round=len(COHORTS))
    before = tree.clone(state)
    tuned = method.finetune(state, cohort)
    for a, b in zip(tree.leaves(before), tree.leaves(state), strict=True):
        assert torch.equal(a, b)
    after = method.round(state, cohort)
    assert_close({n: tuned[n] for n in after.private}, tree.take(after.private, cohort.ids))
    p = cohort.num_examples / cohort.num_examples.sum()
    for name, m in state.adam["m"]["params"].items():
        difference = torch.einsum("c,c...->...", p, state.params[name] - tuned[name])
        torch.testing.assert_close(after.adam["m"]["params"][name], 0.9 * m + 0.1 * difference)


def shard(federation, client, split="test"):
    rows = federation.split(split).of(client)
    return torch.from_numpy(federation.x[rows]), torch.from_numpy(federation.y[rows])


def module(params, norm=True):
    net = TinyNet(4, 3, norm=norm).double().eval()
    net.load_state_dict(params, strict=False)
    return net


def trained(case, executor, **network):
    """(federation, method, state) after rounds in which client 3 took no part."""
    federation, task = toy_federation(SIZES), tiny_task(**network)
    method = make(case, task=task)
    return federation, method, run(method, federation, executor=executor)


def predictions(method, personal, cohort):
    return cohort.score(method.predict, personal, split="test").exp()


@executors
@pytest.mark.parametrize("group", ["seen", "unseen"])
def test_biased_fedavg_gives_a_new_shard_the_mean_bias_of_the_clients_that_train(executor, group):
    federation, method, state = trained("biased_fedavg", executor, norm=True)
    bias = state.private[BIAS][:4].mean(0)
    net = module({**state.params, BIAS: bias})
    cohort = cohort_of(method.task, federation, federation.ids(group), executor=executor)
    found = predictions(method, method.mean_bias(state, cohort), cohort)
    for row, client in zip(found, cohort.host_ids, strict=True):
        torch.testing.assert_close(row, net(shard(federation, client)[0]).softmax(-1))


@executors
@pytest.mark.parametrize("group", ["seen", "unseen"])
@pytest.mark.parametrize("case", ["local_global", "local_global, statistics too"])
def test_local_global_averages_everybodys_representations_of_a_new_shard(case, executor, group):
    federation, method, state = trained(case, executor, norm=True)
    nets = [module({**state.params, **tree.take(state.private, c)}) for c in range(4)]
    depth = 1 if case == "local_global" else 2
    cohort = cohort_of(method.task, federation, federation.ids(group), executor=executor)
    personal = method.everybody(state, cohort)
    if cohort.size > 1:  # nothing is copied for each client
        assert all(tree.is_broadcast(leaf) for leaf in tree.leaves(personal))
    found = predictions(method, personal, cohort)
    for row, client in zip(found, cohort.host_ids, strict=True):
        x, _ = shard(federation, client)
        mean = torch.stack([net.body[:depth](x) for net in nets]).mean(0)
        expected = nets[0].head(nets[0].body[depth:](mean)).softmax(-1)
        torch.testing.assert_close(row, expected)


def test_a_new_shard_is_what_the_server_has_for_fedavg():
    federation, method, state = trained("fedavg_adam", "loop", norm=True)
    assert method.ways["seen"]["new_shard"] == method.ways["seen"]["default"] == "personalise"
    cohort = cohort_of(method.task, federation)
    assert_close(method.personalise(state, cohort), tree.broadcast(state.params, 4), 0)


@executors
@pytest.mark.parametrize("case", ["biased_fedavg", "local_global", "biased_fedavg, faster"])
def test_a_new_client_fits_what_is_private_and_nothing_else(case, executor):
    epochs, federation, task = 3, toy_federation(SIZES), tiny_task()
    local = sgd()
    method = make(case, local=local, task=task, new_client_epochs=epochs)
    state = run(method, federation)
    client, number = 4, len(COHORTS)
    cohort = cohort_of(task, federation, [client], executor=executor, round=number)
    found = tree.take(method.welcome(state, cohort), 0)

    start = {name: start_of(case, task)[name] for name in state.private}
    net = module({**state.params, **start}, norm=False).train()
    own = [p for name, p in net.named_parameters() if name in start]
    rate = 0.1 * method.private_lr_scale
    optimiser = torch.optim.SGD(own, lr=rate, momentum=0.9, weight_decay=5e-4)
    x, y = shard(federation, client, "train")
    batches = draw_batches(len(y), replace(local, epochs=epochs), 0, number, "welcome", client)
    assert len(batches.steps) == epochs * -(-len(y) // local.batch_size)
    for step in batches.steps:
        index = torch.from_numpy(batches.order[step.start : step.stop])
        optimiser.zero_grad()
        cross_entropy(net(x[index]), y[index]).backward()
        optimiser.step()
    assert_params(found, net.state_dict())
    for name, value in state.params.items():
        assert torch.equal(found[name], value)
    for name, value in start.items():
        assert not torch.equal(found[name], value)


def test_welcoming_leaves_the_state_alone_with_running_statistics_too():
    federation, method, state = trained("local_global", "loop", norm=True)
    before = tree.clone(state)
    method.welcome(state, cohort_of(method.task, federation, [4]))
    for a, b in zip(tree.leaves(before), tree.leaves(state), strict=True):
        assert torch.equal(a, b)


# -- divergence ---------------------------------------------------------------------------------


@every_case
def test_the_divergence_of_the_first_rounds_is_recorded(case):
    federation, task = toy_federation(SIZES), tiny_task(norm=True)
    method = make(case, task=task, horizon=2)
    state = run(method, federation)
    recorded = method.diagnostics(state)["divergence"]
    assert recorded.shape == (2, 1)
    # Round 0 by hand, from what the clients of its cohort had before their upload.
    start = method.init(federation.num_clients, 0)
    cohort = cohort_of(task, federation, COHORTS[0])
    tuned, p = method.finetune(start, cohort), cohort.num_examples / cohort.num_examples.sum()
    expected = 0
    for name in task.trainable(start.params):
        d = (start.params[name] - tuned[name]).flatten(1)
        cosine = d[0] @ d[1] / (d[0].norm() * d[1].norm())
        expected += 2 * p[0] * p[1] * 0.5 * (1 - cosine)
    torch.testing.assert_close(recorded[0, 0], expected)
    # Round 1 has one client, who cannot disagree; rounding of float64 in a handful of tensors.
    assert recorded[1, 0].item() == pytest.approx(0, abs=1e-14)


def test_no_divergence_is_recorded_without_a_horizon():
    federation, method = toy_federation(SIZES), make("fedavg_adam")
    assert method.diagnostics(run(method, federation)) == {}


# -- what is sent -------------------------------------------------------------------------------


def two_images(channels, side, classes):
    """Two clients with two training images and a test image each."""
    draw = np.random.default_rng(0)
    return Federation(
        x=draw.integers(0, 256, (6, channels, side, side), dtype=np.uint8),
        y=draw.integers(0, classes, 6),
        num_classes=classes,
        train=Split.from_lists([[0, 1], [2, 3]]),
        val=Split.from_lists([[], []]),
        test=Split.from_lists([[4], [5]]),
        group=np.zeros(2, np.uint8),
        client_id=np.arange(2),
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
    )


# Numbers in a message, as the specification derives them from the communication of Table 1:
# P, P - L and P minus the lower part (section 8).
SENT = {
    "cifar10": ("lenet5", {"num_classes": 10}, (3, 32), (878_538, 878_528, 876_106)),
    "femnist": (
        "lenet5",
        {"num_classes": 62, "in_channels": 1, "side": 28},
        (1, 28),
        (608_702, 608_640, 607_870),
    ),
    "cifar100": ("resnet20", {"num_classes": 100}, (3, 32), (275_572, 275_472, 261_092)),
}


@pytest.mark.parametrize("name", SENT)
def test_messages_have_the_sizes_of_the_paper(name):
    model, params, (channels, side), sizes = SENT[name]
    task = Task(lambda: models.load(model).build(**params))
    federation = two_images(channels, side, params["num_classes"])
    for method, floats in zip(("fedavg_adam", "biased_fedavg", "local_global"), sizes, strict=True):
        method = methods.load(method)(task=task, local=sgd())
        cohort = cohort_of(task, federation)
        state = method.round(method.init(2, 0), cohort)
        assert (cohort.journal.down, cohort.journal.up) == (floats, floats)
        assert tree.numel(state.params) == floats


@executors
def test_lenet_predicts_a_new_shard_from_everybodys_first_convolution(executor):
    _, params, (channels, side), _ = SENT["cifar10"]
    task = Task(lambda: models.load("lenet5").build(**params, channels=4, hidden=8), torch.float64)
    federation = two_images(channels, side, 10)
    method = methods.load("local_global")(task=task, local=sgd(), server_lr=0.1)
    state = run(method, federation, [[0, 1]], executor=executor)
    cohort = cohort_of(task, federation, executor=executor)
    found = predictions(method, method.everybody(state, cohort), cohort)
    nets = []
    for c in range(2):
        net = task.build().double()
        net.load_state_dict({**state.params, **tree.take(state.private, c)})
        nets.append(net)
    for row, client in zip(found, range(2), strict=True):
        x, _ = shard(federation, client)
        x = (x.double() / 255 - 0.5) / 0.25
        mean = (nets[0].body[0](x) + nets[1].body[0](x)) / 2
        torch.testing.assert_close(row, nets[0].head(nets[0].body[1](mean)).softmax(-1))


@pytest.mark.parametrize("case", ["biased_fedavg", "local_global"])
def test_a_rate_of_what_is_private_must_be_one(case):
    with pytest.raises(ValueError, match="private_lr_scale must be at least 0, got -1"):
        make(case, private_lr_scale=-1.0)


def test_a_part_without_parameters_cannot_be_all_that_is_private():
    task = Task(lambda: models.load("mlp").build(in_features=4, hidden=3, num_classes=2))
    with pytest.raises(ValueError, match="'body.0' has no parameters; choose a later part"):
        methods.load("local_global")(task=task, local=sgd())
    assert methods.load("local_global")(task=task, local=sgd(), private="body.1").lower_parts == (
        "body.0",
        "body.1",
    )
