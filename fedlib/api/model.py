"""Any PyTorch module in the form that the engine needs: drawn from a seed, and `head(body(x))`.

The head is the layer that runs last. A run of the module on two inputs finds it. The output of the
module must be the output of this layer.
"""

import copy
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedlib import draws
from fedlib.engine.ambient import dropout_key
from fedlib.errors import ConfigError
from fedlib.models.layers.random import Dropout

Model = nn.Module | Callable[[], nn.Module]


class HeadApart(nn.Module):
    """A module with its last layer as a separate module.

    Attributes:
      head: the last layer.
      body: the module without its last layer.
      path: name of the last layer in the module.
    """

    def __init__(self, whole: nn.Module, path: str):
        super().__init__()
        self.head, self.path = whole.get_submodule(path), path
        if path:
            whole.set_submodule(path, nn.Identity())
        self.body = whole if path else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Output of the module: [B, ...] -> [B, L]"""
        return self.head(self.body(x))


def builder(
    model: Model, inputs: Tensor, name: str, logits: tuple[int, ...] | None = None
) -> Callable[[], nn.Module]:
    """A function that makes `model` with newly drawn parameters, with `body` and `head`.

    Args:
      model: a module, whose layers are drawn again by their own `reset_parameters`; or a function
        without arguments that returns a module, such as a class, whose values are used as they are.
      inputs: [2, ...], two example inputs.
      name: of the model, for messages.
      logits: shape of its output for one input, [L] or, for sequences, [T, L]; for two classes
        one logit is enough. None for any shape.

    Raises:
      ConfigError: if `model` is not such a module or function, cannot read the inputs, does not end
        in a layer with weights, draws from PyTorch's global generator or has frozen weights.
    """
    fresh = _drawn_anew(model, name) if isinstance(model, nn.Module) else partial(_copied, model)
    with draws.aside(0):
        probe = fresh()
        if not isinstance(probe, nn.Module):
            raise ConfigError(
                f"{name} must be a torch.nn.Module, or a function that makes one, got {model!r:.80}"
            )
        lazy = [path for path, x in probe.named_parameters() if is_lazy(x)]
        if lazy:
            raise ConfigError(f"{name}: {lazy[0]} has no shape yet; run the model once first")
        frozen = [path for path, x in probe.named_parameters() if not x.requires_grad]
        if frozen:
            raise ConfigError(
                f"{name}: {frozen[0]} is frozen; clients train all of a model, unless the method "
                "trains a part of it (docs/methods.md)"
            )
        odd = [x.dtype for x in probe.parameters() if x.dtype != torch.float32]
        if odd:
            raise ConfigError(f"{name} has weights of {odd[0]}; give {name}.float()")
        outputs = _run(probe.eval(), inputs, name)
        given = tuple(outputs.shape[1:])
        single = logits is not None and logits[-1] == 2 and given == (*logits[:-1], 1)
        if logits not in (None, given) and not single:
            raise ConfigError(
                f"{name} gives {_text(given)} numbers for an input, and must give {_text(logits)}: "
                "a logit for each class"
            )
        apart = _is_apart(probe, inputs, outputs)
        path = None if apart else _last_layer(probe, inputs, outputs, name)
        _check_draws(_with_own_dropout(probe).train(), inputs, name)

    return partial(_made, fresh, path)


def whole(module: nn.Module) -> nn.Module:
    """Undo `builder`: the user's model, with PyTorch's own dropout."""
    for path, layer in [*module.named_modules()]:
        if type(layer) is Dropout:
            module.set_submodule(path, nn.Dropout(layer.p))
    if not isinstance(module, HeadApart):
        return module
    if module.path:
        module.body.set_submodule(module.path, module.head)
    return module.body if module.path else module.head


def _made(fresh: Callable[[], nn.Module], path: str | None) -> nn.Module:
    made = _with_own_dropout(fresh())
    return made if path is None else HeadApart(made, path)


def _copied(make: Callable[[], nn.Module]) -> nn.Module | None:
    """A copy of what a user's function returns, which may be a module that the user keeps."""
    return copy.deepcopy(make()) if callable(make) else None


def _drawn_anew(model: nn.Module, name: str) -> Callable[[], nn.Module]:
    model = copy.deepcopy(model)  # independent of later changes of the user's model
    layers = {path: layer for path, layer in model.named_modules() if _own_weights(layer)}
    fixed = [path for path, layer in layers.items() if not hasattr(layer, "reset_parameters")]
    if fixed:
        path = fixed[0]
        raise ConfigError(
            f"{name}: {type(layers[path]).__name__} {path!r} has weights and no reset_parameters, "
            "so a seed cannot draw them; give a function that makes the model, such as its class"
        )

    return partial(_reset, model, [*layers])


def _reset(model: nn.Module, layers: list[str]) -> nn.Module:
    """A copy of a module, with these layers drawn anew."""
    made = copy.deepcopy(model)
    for path in layers:
        made.get_submodule(path).reset_parameters()
    return made


def _own_weights(layer: nn.Module) -> bool:
    return any(True for _ in layer.parameters(recurse=False))


def _run(model: nn.Module, inputs: Tensor, name: str) -> Tensor:
    try:
        with torch.no_grad():
            outputs = model(inputs)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        shape, reason = _text(inputs.shape[1:]), str(error).splitlines()[0]
        raise ConfigError(f"{name} cannot read inputs of {shape} numbers: {reason}") from error
    if not isinstance(outputs, Tensor) or len(outputs) != len(inputs) or outputs.dim() < 2:
        raise ConfigError(f"{name} must give logits [B, L], one row for each input")
    return outputs


def _text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def _is_apart(model: nn.Module, inputs: Tensor, outputs: Tensor) -> bool:
    """Whether the model already is `head(body(x))`, with all weights in these two."""
    children = dict(model.named_children())
    own = {path.partition(".")[0] for path, _ in model.named_parameters()}
    if not {"body", "head"} <= children.keys() or not own <= {"body", "head"}:
        return False
    try:
        with torch.no_grad():
            return torch.equal(model.head(model.body(inputs)), outputs)
    except (RuntimeError, TypeError, ValueError):
        return False


def _last_layer(model: nn.Module, inputs: Tensor, outputs: Tensor, name: str) -> str:
    """Path of the layer with weights that runs last."""
    ran: list[tuple[str, Tensor]] = []
    hooks = [
        layer.register_forward_hook(lambda _, args, out, path=path: ran.append((path, out)))
        for path, layer in model.named_modules()
        if _own_weights(layer)
    ]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    if not ran:
        raise ConfigError(f"{name} has no layer with weights, so there is nothing to train")
    path, last = ran[-1]
    kind = type(model.get_submodule(path)).__name__
    if not isinstance(last, Tensor) or not torch.equal(last, outputs):
        raise ConfigError(
            f"{name} must end in its last layer, {kind} {path!r}, which gives the logits; take "
            "away what comes after it, such as a softmax"
        )
    apart = HeadApart(copy.deepcopy(model), path)
    shared = {*map(id, apart.head.parameters())} & {*map(id, apart.body.parameters())}
    with torch.no_grad():
        once = [other for other, _ in ran].count(path) == 1 and not shared
        if not once or not torch.equal(apart(inputs), outputs):
            raise ConfigError(
                f"{name}: its last layer, {kind} {path!r}, must be used once, on what the others "
                "give, and share no weights with them"
            )
    return path


def _with_own_dropout(model: nn.Module) -> nn.Module:
    """`model`, with dropout masks that are functions of seed, client and step."""
    places = [path for path, layer in model.named_modules() if type(layer) is nn.Dropout]
    for salt, path in enumerate(places):
        model.set_submodule(path, Dropout(model.get_submodule(path).p, salt))
    return model


def _check_draws(model: nn.Module, inputs: Tensor, name: str) -> None:
    """Raises ConfigError for a model that draws from the global generator in training."""
    instead = "take nn.Dropout or fedlib.models.layers.random.Dropout as a layer"
    with draws.refused(name, instead), torch.no_grad(), dropout_key(torch.tensor(0)):
        model(inputs)
