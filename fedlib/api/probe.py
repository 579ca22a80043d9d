"""A trial of a user's module on two inputs: are its outputs logits, and which layer is its head?

Both modes are tried, and the head with larger weights, too. What follows the head would otherwise
act on the features, without a word: a clamp that two small inputs do not reach, or a temperature in
training only.
"""

import copy
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fedlib import draws
from fedlib.engine.ambient import dropout_key
from fedlib.errors import ConfigError, brief, quote

LOUD = 1000  # factor of the head's weights


class Place(nn.Module):
    """Where the head was in the body: gives its inputs back.

    To code that asks for the head's attributes, such as `self.fc.in_features`, it looks like the
    head. Its weights have type, device and shape, and no values.
    """

    def __init__(self, head: nn.Module):
        super().__init__()
        head = copy.deepcopy(head).requires_grad_(False)
        for weights in head.parameters():
            weights.fill_(torch.nan)
        self._like = [head]  # not a module of this one: it has no parameters

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_like" not in vars(self):  # how to copy, or not made yet
                raise
            return getattr(self._like[0], name)

    def _apply(self, fn: Callable, recurse: bool = True) -> nn.Module:
        self._like[0]._apply(fn)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        """[B, ..., F] -> [B, ..., F]"""
        return x


class HeadApart(nn.Module):
    """A module with its last layer as a separate module.

    Attributes:
      head: the last layer.
      body: the module without its last layer.
      path: name of the last layer in the module.
      paths: all its names.
    """

    def __init__(self, whole: nn.Module, path: str):
        super().__init__()
        self.head, self.path = whole.get_submodule(path), path
        everywhere = whole.named_modules(remove_duplicate=False)
        self.paths = [name for name, layer in everywhere if layer is self.head and name]
        place = Place(self.head) if path else None
        for name in self.paths:
            whole.set_submodule(name, place)
        self.body = whole if path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Output of the module: [B, ...] -> [B, L]"""
        return self.head(self.body(x))

    def whole(self) -> nn.Module:
        """The module, with its last layer in it again."""
        for name in self.paths:
            self.body.set_submodule(name, self.head)
        return self.body if self.paths else self.head


def outputs(model: nn.Module, inputs: Tensor, name: str, train: bool = False) -> Tensor:
    """Output of a module in one of its modes -> [2, L], or [2, T, L] for sequences

    Raises:
      ConfigError: if it raises an error, changes its inputs, or gives something else than logits.
    """
    given, when = inputs.clone(), " in training" if train else ""
    takes = inspect.signature(model.forward)
    try:
        takes.bind(given)
    except TypeError:
        raise ConfigError(
            f"{name} must read one tensor, got forward{takes}; models with several inputs are not "
            "supported"
        ) from None
    try:
        with torch.no_grad(), dropout_key(torch.tensor(0)):
            model.train(train)
            found = model(given)
    except Exception as error:
        whole = "" if inputs.is_floating_point() else "; integers stay integers: are they tokens?"
        numbers = text(inputs.shape[1:])
        raise ConfigError(
            f"{name} cannot read inputs of {numbers} numbers{when}: {brief(error)}{whole}"
        ) from error
    if given._version:
        raise ConfigError(
            f"{name} changes its inputs in place, which others read, too; begin with x = x.clone()"
        )
    if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != len(inputs):
        what = f"shape {[*found.shape]}" if isinstance(found, Tensor) else _kind(found)
        raise ConfigError(
            f"{name} must give logits [B, L], one row for each input, got {what} for "
            f"{len(inputs)} inputs{when}"
        )
    if found.isnan().any():
        raise ConfigError(f"{name} gives NaN before its first step{when}")
    return found


def check_draws(model: nn.Module, inputs: Tensor, name: str) -> None:
    """Raises ConfigError for a model that draws random numbers, or remembers earlier inputs."""
    instead = "make nn.Dropout itself a layer, or switch it off, as by dropout=0 of attention"
    for train in (True, False):

        def run(model: nn.Module, train: bool = train) -> Tensor:
            return outputs(copy.deepcopy(model), inputs, name, train).nan_to_num()

        if all(_draws(run, model) for _ in range(draws.TRIES)):
            path = _first_to_draw(run, model)
            layer = f": {type(model.get_submodule(path)).__name__} {path!r}" if path else ""
            with draws.refuse(f"{name}{layer}", instead):
                run(model)
        if not torch.equal(run(model), run(model)):
            raise ConfigError(
                f"{name} gives other outputs when it reads the same inputs again, so that a run "
                "could not be repeated; does it draw random numbers?"
            )


def head(model: nn.Module, inputs: Tensor, name: str) -> str | None:
    """Path of the layer with weights that runs last; None if the module is `head(body(x))` already.

    Weights of the module itself, such as a learned temperature, are no layer beside others.

    Raises:
      ConfigError: if there is no such layer, or something follows it.
    """
    if _is_apart(model) and not _fault(model, "head", model, inputs, name):
        return None
    ran = _trace_layers(model, inputs, name)
    if not ran:
        raise ConfigError(f"{name} has no layer with weights that is called: nothing to train")
    ran = [(path, is_output) for path, is_output in ran if path] or ran
    last = [path for path, is_output in ran if is_output] or [ran[-1][0]]
    faults = {}
    for path in last:  # from the inside: a module that has weights itself may contain the layer
        faults[path] = _fault(model, path, HeadApart(copy.deepcopy(model), path), inputs, name)
        if not faults[path]:
            return path
    layer = type(model.get_submodule(last[0])).__name__
    raise ConfigError(f"{name}: its last layer, {layer} {last[0]!r}, {faults[last[0]]}")


def keeps_layout(model: nn.Module, inputs: Tensor, name: str) -> bool:
    """Whether a module cannot read images with channels last, as `x.view` cannot."""
    try:
        for train in (False, True):
            outputs(model, inputs, name, train)
    except ConfigError:
        return True
    return False


def owns_weights(layer: nn.Module) -> bool:
    """Whether a module has parameters beside those of the modules in it."""
    return next(layer.parameters(recurse=False), None) is not None


def text(shape: Iterable[int]) -> str:
    """A shape for a message, as "3x8x8"."""
    return "x".join(map(str, shape))


def _draws(run: Callable[[nn.Module], Tensor], model: nn.Module) -> bool:
    """Whether running a module moves a global generator, or another thread does meanwhile."""
    with draws.aside():
        before = draws.positions()
        run(model)
        return before != draws.positions()


def _first_to_draw(run: Callable[[nn.Module], Tensor], model: nn.Module) -> str:
    """Path of the first module that draws; "" for the whole."""
    model, found, before = copy.deepcopy(model), [""], {}

    def watch(path: str, layer: nn.Module) -> None:
        def end(*_: Any) -> None:
            if before[path] != draws.positions():
                found.append(path)

        layer.register_forward_pre_hook(lambda *_: before.update({path: draws.positions()}))
        layer.register_forward_hook(end)

    for path, layer in model.named_modules():
        watch(path, layer)
    with draws.aside():
        run(model)
    return found[1] if found[1:] else ""


def _is_apart(model: nn.Module) -> bool:
    """Whether all weights of a module are in its children `body` and `head`, none in both."""
    own = {path.partition(".")[0] for path, _ in model.named_parameters(remove_duplicate=False)}
    both = {"body", "head"}
    return both <= dict(model.named_children()).keys() and own <= both


def _trace_layers(model: nn.Module, inputs: Tensor, name: str) -> list[tuple[str, bool]]:
    """Layers with weights in the order in which they end, and whether they gave the output."""
    model, ran = copy.deepcopy(model), []
    for path, layer in model.named_modules():
        if owns_weights(layer):
            layer.register_forward_hook(lambda _, __, out, path=path: ran.append((path, out)))
    found = outputs(model, inputs, name)
    if any(isinstance(out, Tensor) and out.is_nested for _, out in ran):
        raise ConfigError(
            f"{name} has nested tensors in evaluation; take enable_nested_tensor=False"
        )
    return [(path, _is_same(out, found)) for path, out in ran]


def _fault(model: nn.Module, path: str, apart: nn.Module, inputs: Tensor, name: str) -> str | None:
    """Why this layer, which is `apart.head`, is not the head of a module; None if it is."""
    used = "must be used once, on what the others give, and share no weights with them"
    if {*map(id, apart.head.parameters())} & {*map(id, apart.body.parameters())}:
        return used
    model, gave = copy.deepcopy(model), []
    parts = copy.deepcopy(nn.Sequential(apart.body, apart.head))
    layer = model.get_submodule(path)
    layer.register_forward_hook(lambda _, __, out: gave.append((out, out._version)))
    for factor, train in itertools.product((1, LOUD), (False, True)):
        for weights in {*layer.parameters(), *parts[1].parameters()}:
            weights.data.mul_(1 if train else factor)
        found = outputs(model, inputs, name, train)
        if not gave or not _is_same(gave[-1][0], found) or gave[-1][1] != found._version:
            when = " in training, too" if train else ""
            also = "or call what gives the logits `head` and all before it `body`"
            return f"must give the logits{when}; take away what follows, such as a softmax, {also}"
        try:
            other = outputs(parts, inputs, name, train)
        except ConfigError:
            return used
        if not torch.equal(found.nan_to_num(), other.nan_to_num()):
            return used
    return None


def _is_same(gave: Any, found: Tensor) -> bool:
    """Whether two tensors are the same numbers in memory."""
    return isinstance(gave, Tensor) and (
        (gave.data_ptr(), gave.shape, gave.stride())
        == (found.data_ptr(), found.shape, found.stride())
    )


def _kind(value: Any) -> str:
    """What a model gave in place of a tensor, for a message."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return f"a {kind} of {quote([*value])}"
    if isinstance(value, tuple | list):
        return f"a {kind} of {len(value)}"
    return " ".join(quote(value).split())  # in one line
