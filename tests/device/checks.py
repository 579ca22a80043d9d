"""What a device has to do; `test_device.py` asks for one check after the other, in another process.

It reads a line of JSON for each, the name of a function below and its arguments, and answers with
the list of what went wrong. REAL_DEVICE=cuda takes that device; otherwise it is the pretended one,
which must have been installed before this is imported.
"""

import contextlib
import json
import os
import sys
import tempfile
import traceback
import warnings
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import every_method as contract
import numpy as np
import pretended
import torch
from support import clients_with, federation_for, sgd
from torch import Tensor, nn

import fedlib
import fedlib.engine.device as placing
import fedlib.engine.graphs as graphs
from fedlib import methods
from fedlib.engine.device import DeviceData
from fedlib.engine.executors import Batched, Loop
from fedlib.engine.task import Task
from fedlib.engine.traced import Traced
from fedlib.environment import environment
from fedlib.models import char_lstm, load
from fedlib.run import checkpoint, evaluate
from fedlib.run.simulate import Course, Simulation

NAME = os.environ.get("REAL_DEVICE") or pretended.NAME
warnings.filterwarnings("ignore")
torch.set_num_threads(1)

GPU = torch.device(NAME)
EXECUTORS = {
    "loop": Loop,
    "traced": Traced,
    "batched": Batched,
    "batched:2": lambda: Batched(2),
    "graphs": graphs.Graphs,
    "graphs:2": lambda: graphs.Graphs(2),
}
ROUNDING = 1e-9  # float64; clients are summed in another order than on a CPU
ROUNDS = 2
# Two rounds are enough to capture every step. CUDA's libraries begin at their first use, and cannot
# in a capture.
graphs.WARM = 0 if NAME == pretended.NAME else 1
if NAME == pretended.NAME:  # PyTorch's own recurrence has no kernel for such a device
    char_lstm.torch_lstm = char_lstm.recurrence


def there(value, device=GPU):
    """A method, with its tasks on a device."""
    if isinstance(value, Task):
        return replace(value, device=device)
    if isinstance(value, tuple):
        return tuple(there(x, device) for x in value)
    if not isinstance(value, methods.base.Method):
        return value
    return replace(
        value, **{f.name: there(getattr(value, f.name), device) for f in fields(value) if f.init}
    )


def simulation_of(method, federation, how, **course) -> Simulation:
    data = DeviceData(federation, method.task.dtype, method.task.device)
    return Simulation(method, data, Course(rounds=ROUNDS, seed=0, **course), EXECUTORS[how]())


def numbers(simulation, folder=None, stop=lambda: False) -> dict:
    """Everything that a training and its final evaluation say, by name."""
    points = checkpoint.Checkpoints(Path(folder), {}, every=1) if folder else None
    state, history = simulation.run(points, lambda line: None, stop)
    method, rounds = simulation.method, simulation.course.rounds
    ended = evaluate.final(
        method, state, lambda group: simulation.everyone(group, rounds), predictions=True
    )
    found = dict(checkpoint.flatten(state))
    for part, result in (("history", history), ("final", ended)):
        for view, scores in result.scores.items():
            found[part, view, "correct"] = torch.as_tensor(np.asarray(scores.correct, float))
            found[part, view, "loss"] = torch.as_tensor(scores.loss)
        for name, values in result.diagnostics.items():
            found[part, name] = torch.as_tensor(np.asarray(values, float))
        found[part, "train_loss"] = torch.as_tensor(result.train_loss)
    return {name: x.detach().cpu() for name, x in found.items() if isinstance(x, Tensor)}


def differing(one: dict, other: dict, tolerance: float) -> list[str]:
    """A line for what differs most, by the largest number of its tensor."""
    if one.keys() != other.keys():
        return [f"other names: {sorted(map(str, one.keys() ^ other.keys()))[:3]}"]
    worst, where = 0.0, None
    for name, x in one.items():
        y = other[name]
        if x.shape != y.shape:
            return [f"{name} is {list(x.shape)}, not {list(y.shape)}"]
        if not x.is_floating_point() or not x.numel():
            far = float(not torch.equal(x, y))
        else:
            finite = x.isfinite() & y.isfinite()
            if not torch.equal(x.nan_to_num()[~finite], y.nan_to_num()[~finite]):
                return [f"{name} has other numbers that are not finite"]
            x, y = x[finite], y[finite]
            # Smaller ones than 1e-6 are what rounding leaves of 0.
            far = float((x - y).abs().max() / y.abs().max().clamp_min(1e-6)) if len(x) else 0.0
        if far > worst:
            worst, where = far, name
    return [f"{where} differs by {worst:.1e}"] if worst > tolerance else []


def prepared(name: str):
    """(method on the CPU, federation, course, tolerance) of the method `name`."""
    course = {} if name in contract.EVERYBODY else {"rate": 0.67}
    tolerance = contract.LOOSER.get(name, ROUNDING)
    return contract.make(name, **contract.NETWORK), federation_for(name), course, tolerance


@cache
def on_cpu(name: str, how: str) -> dict:
    method, federation, course, _ = prepared(name)
    return numbers(simulation_of(method, federation, how, **course))


# -- checks -------------------------------------------------------------------------------------


def method(name: str, how: str) -> list[str]:
    """Two rounds, evaluations and final protocols agree with the CPU's, and replay every step."""
    at_home, federation, course, tolerance = prepared(name)
    simulation = simulation_of(there(at_home), federation, how, **course)
    wrong = differing(numbers(simulation), on_cpu(name, how), tolerance)
    refused = simulation.executor.notes.get("not_replayed", {})
    return wrong + [f"not replayed: {reason}" for reason in refused]


def resumed(name: str, to_device: bool) -> list[str]:
    """A checkpoint of one device is continued on the other."""
    at_home, federation, course, tolerance = prepared(name)
    first, then = (at_home, there(at_home))[:: 1 if to_device else -1]
    with tempfile.TemporaryDirectory() as folder:
        calls: list = []
        with contextlib.suppress(SystemExit):
            begun = simulation_of(first, federation, "batched", **course)
            numbers(begun, folder, lambda: calls.append(1) or True)
        if not (Path(folder) / "checkpoint.json").exists():
            return ["there is no checkpoint after the first round"]
        ours = numbers(simulation_of(then, federation, "batched", **course), folder)
    return differing(ours, on_cpu(name, "batched"), tolerance)


def at_home(name: str, how: str) -> list[str]:
    """States that are too large for the device stay in host memory."""
    method, federation, course, tolerance = prepared(name)
    share, placing.DEVICE_SHARE = placing.DEVICE_SHARE, 0
    try:
        ours = numbers(simulation_of(there(method), federation, how, **course))
    finally:
        placing.DEVICE_SHARE = share
    return differing(ours, on_cpu(name, how), max(tolerance, 1e-8))


def waits(name: str, how: str, allowed: dict[str, str]) -> list[str]:
    """No wait in a step, and none in a round but where it is allowed."""
    method, federation, _, _ = prepared(name)
    method = there(method)
    simulation = simulation_of(method, federation, how)
    state, ids = simulation.init(), federation.ids("seen")
    inside = [0]
    kind = type(simulation.executor)
    lift = kind.lift

    def lifted(self, fn):
        step = lift(self, fn)

        def counted(*args):
            inside[0] += 1
            try:
                return step(*args)
            finally:
                inside[0] -= 1

        return counted

    wrong: list[str] = []
    kind.lift = lifted
    try:
        state = method.round(state, simulation.cohort(ids, 0))  # libraries begin
        with pretended.watching(lambda: bool(inside[0])) as found:
            method.round(state, simulation.cohort(ids, 1))
    finally:
        kind.lift = lift
    for (what, place, step), count in found.items():
        if step or place not in allowed:
            wrong.append(f"{'a step' if step else 'a round'} waits {count} x for {what}: {place}")
    return wrong


IMAGES, COLOURS = {"shape": (1, 28, 28)}, {"shape": (3, 32, 32)}
MODELS = {
    "char_lstm": ({"num_classes": 20, "embedding": 4, "hidden": 6}, {"tokens": 20, "each": 20}),
    "cifar_resnet18": ({"width": 2, "augment": True}, COLOURS),
    "constant": ({}, IMAGES),
    "emnist_cnn": ({}, IMAGES),
    "fedmoe_cnn": ({"hidden": 8, "augment": True}, IMAGES),
    "gate_cnn": ({"conv1": 2, "conv2": 3, "hidden": 6, "dropout": 0.3}, COLOURS),
    "ifca_cnn": ({"dropout": 0.3}, COLOURS),
    "leaf_cnn": ({"conv1": 2, "conv2": 3, "hidden": 6, "dropout": 0.3}, COLOURS),
    "lenet5": ({}, COLOURS),
    "linear": ({"in_features": 784}, IMAGES),
    "mlp": ({"in_features": 784, "hidden": [200]}, IMAGES),
    "mobilenet_v2": ({}, COLOURS),
    "pfedmoe_cnn": ({}, COLOURS),
    "pfedmoe_gate": ({}, COLOURS),
    "resnet20": ({}, COLOURS),
    "transformer": ({"size": "bert-lite"}, {"tokens": 1000}),
}

LOOSER = {"mobilenet_v2": 1e-2}  # 52 normalisations by three examples, of maps of one pixel at last


def model(name: str, how: str, method: str) -> list[str]:
    """An architecture trains as on a CPU, within what other kernels round differently."""
    params, about = MODELS[name]
    known = load(name).build.__code__
    params = {"num_classes": 5} | params
    params = {k: v for k, v in params.items() if k in known.co_varnames}
    draw = np.random.default_rng(0)
    x = draw.normal(size=(32, *about.get("shape", ())))
    y = draw.integers(0, 5, 32)
    if "tokens" in about:
        x = draw.integers(1, about["tokens"], (32, 7))
        y = draw.integers(0, about["each"], x.shape) if "each" in about else y
    rows = np.split(draw.permutation(32), [10, 23])
    federation = clients_with(x, y, [(r[:-4], r[-4:]) for r in rows], about.get("each", 5))
    task = Task(lambda: load(name).build(**params), dtype=torch.float64)
    more = {"num_experts": 2} if method == "pfedmm" else {}
    # Few examples: normalisation by their statistics magnifies rounding from step to step.
    local = sgd(batch_size=3, steps=1, lr=0.01)
    at_home = methods.load(method)(task=task, local=local, **more)
    ours, theirs = (numbers(simulation_of(m, federation, how)) for m in (there(at_home), at_home))
    return differing(ours, theirs, LOOSER.get(name, 1e-6))


def other_card() -> list[str]:
    """The second of two devices captures its own steps, and is the one that a result names."""
    second = torch.device(NAME, 1)
    method, federation, course, tolerance = prepared("fedavg")
    simulation = simulation_of(there(method, second), federation, "graphs", **course)
    wrong = differing(numbers(simulation), on_cpu("fedavg", "graphs"), tolerance)
    if not simulation.executor.notes["replays"]:
        wrong.append(f"nothing is replayed: {dict(simulation.executor.notes['not_replayed'])}")
    if environment(second)["gpu"] != torch.cuda.get_device_name(second):
        wrong.append("a result names another device")
    return wrong


def api(method: str) -> list[str]:
    """The public functions train, evaluate and hand out a model that a CPU can use."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 8)).astype(np.float32)
    clients = fedlib.partition(x, draw.integers(0, 3, 200), "dirichlet", num_clients=5, alpha=1.0)
    network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    local = fedlib.SGD(lr=0.1, batch_size=16, drop_last=True)
    more = {"num_experts": 2} if method == "pfedmm" else {}
    found = fedlib.simulate(
        clients, network, method, local=local, rounds=2, device=NAME, progress=None, **more
    )
    found.evaluate()
    own = found.client_model(1)
    inputs = torch.from_numpy(x[:2])
    before = own(inputs).cpu()
    return [] if torch.allclose(before, own.cpu()(inputs), atol=1e-5) else ["the CPU differs"]


def refusals() -> list[str]:
    """What other checks rely on: devices do not mix, memory is not clear, graphs refuse waits."""
    x = torch.zeros(3, device=GPU)
    graph = torch.cuda.CUDAGraph()

    def captured(work) -> None:
        side = torch.cuda.Stream(x.device)
        with torch.cuda.stream(side), torch.cuda.graph(graph, stream=side):
            work()

    wrong = []
    for what in (
        lambda: x + torch.ones(3),
        lambda: x + torch.ones(3, device=torch.device(NAME, 1)),
        lambda: captured(lambda: x.sum().item()),
        lambda: captured(lambda: x.new_tensor([1.0])),
    ):
        with contextlib.suppress(RuntimeError):
            wrong.append(f"not refused: {what()}")
    if not torch.empty(3, device=GPU).isnan().all():
        wrong.append("new memory has numbers")
    captured(lambda: x.add_(1))
    if x.sum().item() != 0:
        wrong.append("capturing computes")
    graph.calls = graph.calls[-1:]
    graph.replay()
    return wrong + ([] if x.sum().item() == 3 else ["a replay does not compute"])


def captures() -> list[str]:
    """A step that cannot be captured is called, the next is captured; one without kernels fails."""
    executor, x = graphs.Graphs(), torch.zeros(3, device=GPU)

    def reads() -> None:
        x.sum().item()

    wrong = [] if executor.capture(reads, x.device) is reads else ["a wait is captured"]
    if torch.cuda.current_stream(x.device) != torch.cuda.default_stream(x.device):
        wrong.append("it stays on the stream of the capture")
    replay = executor.capture(lambda: x.add_(1), x.device)
    replay()
    replay()
    notes = executor.notes["captured_shapes"], sum(executor.notes["not_replayed"].values())
    if notes != (1, 1) or x.tolist() != [2, 2, 2]:
        wrong.append(f"the next capture: {x.tolist()}, {executor.notes}")
    if any("previous error" in reason for reason in executor.notes["not_replayed"]):
        wrong.append("the reason is not noted")
    with contextlib.suppress(RuntimeError):
        wrong.append(f"captured without kernels: {executor.capture(lambda: None, x.device)}")
    return wrong


def shared_storage() -> list[str]:
    """A checkpoint of clients that share tensors is as large as one made on a CPU."""
    sizes = []
    for device in ("cpu", GPU):
        state = there(contract.make("fedrep"), torch.device(device)).init(100, 0)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.pt"
            checkpoint.save_tensors(file, checkpoint.flatten(state))
            sizes.append(file.stat().st_size)
    return [] if sizes[0] == sizes[1] else [f"{sizes[1]} bytes, from a CPU {sizes[0]}"]


def main() -> None:
    """Answer until the standard input ends; what a check prints is not an answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        check, arguments = json.loads(line)
        try:
            wrong = globals()[check](*arguments)
        except Exception:
            wrong = [traceback.format_exc()]
        print(json.dumps(wrong), file=answers, flush=True)


if __name__ == "__main__":
    main()
