"""Any PyTorch module in the form that the engine needs: drawn from a seed, and `head(body(x))`.

The head is the layer that runs last, and its output must be that of the module; `fedlib.api.probe`
finds it.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedlib import draws, tree
from fedlib.api import probe
from fedlib.api.probe import HeadApart
from fedlib.engine.device import channels_last
from fedlib.errors import ConfigError, brief
from fedlib.models.layers.random import Dropout

Model = nn.Module | Callable[[], nn.Module]


def builder(
    model: Model,
    inputs: Tensor,
    name: str,
    logits: tuple[int, ...] | None = None,
    given: int | None = None,
) -> Callable[[], nn.Module]:
    """A function that makes `model`, drawn from a seed or as it is, with `body` and `head`.

    Args:
      model: a module, whose layers are drawn again by their own `reset_parameters`; or a function
        without arguments that returns a module, such as a class, whose values are used as they are.
      inputs: [2, ...], two example inputs.
      name: of the model, for messages.
      logits: shape of its output for one input, [L] or, for sequences, [T, L]; for two classes
        one logit is enough. None for any shape.
      given: seed of the run if a module's values are used as they are, too. With other seeds, which
        are those of further experts, the head is drawn anew; equal experts would stay equal.

    Raises:
      ConfigError: if `model` is not such a module or function, cannot read the inputs, does not end
        in a layer with weights, draws from PyTorch's global generator or has frozen weights alone.
    """
    if isinstance(model, nn.Module):  # independent of what the user does with it later
        model = _first(partial(_copy, model), model, name)
    drawn = isinstance(model, nn.Module) and given is None
    fresh = _prepare_reset(model, name) if drawn else partial(_copy, model)
    made = _first(fresh, model, name)
    _check_weights(made, name)
    _check_same(fresh, name)
    with draws.aside(0):
        trial = _with_own_dropout(made)
        found = tuple(probe.outputs(trial, inputs, name).shape[1:])
        single = logits is not None and logits[-1] == 2 and found == (*logits[:-1], 1)
        if logits not in (None, found) and not single:
            raise ConfigError(
                f"{name} gives {probe.text(found)} numbers for an input, and must give "
                f"{probe.text(logits)}: a logit for each class"
            )
        probe.check_draws(trial, inputs, name)
        path = probe.head(trial, inputs, name)
        keeps = inputs.dim() == 4 and probe.keeps_layout(trial, channels_last(inputs), name)
    return partial(_build, fresh, path, given, keeps)


def is_given(model: Model) -> bool:
    """Whether a function returns the same values whatever the seed."""
    if isinstance(model, nn.Module) or not callable(model):
        return False
    with contextlib.suppress(Exception):  # which `builder` tells
        one, other = (_values(model, seed).values() for seed in (0, 1))
        return all(map(torch.equal, one, other))
    return False


def _values(make: Callable[[], nn.Module], seed: int) -> dict[str, Tensor]:
    """Parameters and buffers of the module that is made at `seed`, by name.

    NaN, which does not equal itself, is 0 here.
    """
    with draws.aside(seed):
        made = make()
        return {x: y.nan_to_num() for x, y in (*made.named_parameters(), *made.named_buffers())}


def whole(module: nn.Module) -> nn.Module:
    """Undo `builder`: the user's model, with PyTorch's own dropout."""
    _replace(module, Dropout, lambda layer, _: nn.Dropout(layer.p))
    return module.whole() if isinstance(module, HeadApart) else module


def _first(fresh: Callable[[], nn.Module], model: Model, name: str) -> nn.Module:
    """The module, made for the first time."""
    try:
        with draws.aside(0):
            made = fresh()
    except Exception as error:
        raise ConfigError(f"{name} cannot be made: {brief(error)}") from error
    if not isinstance(made, nn.Module):
        raise ConfigError(
            f"{name} must be a torch.nn.Module, or a function that makes one, got {model!r:.80}"
        )
    return made


def _check_weights(made: nn.Module, name: str) -> None:
    if lazy := [path for path, x in made.named_parameters() if is_lazy(x)]:
        raise ConfigError(f"{name}: {lazy[0]} has no shape yet; run the model once first")
    trained = [x.requires_grad for x in made.parameters()]
    if trained and not any(trained):
        raise ConfigError(f"{name}: all of its parameters are frozen, so there is nothing to train")
    _check_hidden(made, name)
    for path, layer in made.named_modules():
        if isinstance(layer, nn.SyncBatchNorm):
            raise ConfigError(f"{name}: {path} joins several processes; take nn.BatchNorm1d or 2d")
        if getattr(layer, "max_norm", None) is not None or getattr(layer, "sparse", False) is True:
            raise ConfigError(
                f"{name}: {path} must have neither max_norm, which changes weights in evaluation, "
                "too, nor sparse gradients"
            )
    if odd := [path for path, x in made.named_buffers() if x.is_complex()]:
        raise ConfigError(f"{name}: {odd[0]} is complex; keep torch.view_as_real of it")
    if odd := [x.dtype for x in made.parameters() if x.dtype != torch.float32]:
        real = "torch.view_as_complex of real ones" if odd[0].is_complex else f"{name}.float()"
        raise ConfigError(f"{name} has weights of {odd[0]}; give {real}")


def _check_hidden(made: nn.Module, name: str) -> None:
    """Raises ConfigError for weights that PyTorch does not know, as of layers in a plain list."""
    known = {*made.parameters()}
    for path, part in made.named_modules():
        for key, value in vars(part).items():
            kept = [x.parameters() if isinstance(x, nn.Module) else [x] for x in tree.leaves(value)]
            tensors = [x for x in itertools.chain(*kept) if isinstance(x, Tensor) and x.is_leaf]
            if any(x.requires_grad and x not in known for x in tensors):
                raise ConfigError(
                    f"{name}: weights in {f'{path}.{key}'.lstrip('.')} are none of its "
                    "parameters, so nobody would train them; take nn.ModuleList, or freeze them"
                )


def _check_same(fresh: Callable[[], nn.Module], name: str) -> None:
    """Raises ConfigError for a model that has other weights when it is made again."""
    odd = []
    for _ in range(draws.TRIES):
        one, other = (_values(fresh, 0) for _ in range(2))
        odd = [x for x in one if x not in other or not torch.equal(one[x], other[x])]
        if not odd:
            return
    raise ConfigError(
        f"{name}: {odd[0]} has other values each time the model is made with the same seed, so "
        "that a run could not be repeated; draw them with torch.nn.init"
    )


def _build(
    fresh: Callable[[], nn.Module], path: str | None, given: int | None, keeps: bool
) -> nn.Module:
    seed = torch.initial_seed()  # before the user's function, which may call torch.manual_seed
    made = _with_own_dropout(fresh())
    apart = made if path is None else HeadApart(made, path)
    if given is not None and seed % 2**64 != given:
        layers = [layer for layer in apart.head.modules() if probe.owns_weights(layer)]
        _draw_anew([x for x in layers if hasattr(x, "reset_parameters")], seed)
    apart.keeps_layout = keeps
    return apart


def _copy(model: Model) -> nn.Module | None:
    """A copy, on the CPU, of a module or of what a function returns, which the user may keep."""
    made = model() if callable(model) and not isinstance(model, nn.Module) else model
    if not isinstance(made, nn.Module):
        return None
    for weights in made.parameters():
        if weights._backward_hooks or getattr(weights, "_post_accumulate_grad_hooks", None):
            raise ValueError("its weights have hooks on gradients, which copies lose; take forward")
    for path, part in made.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise ValueError("it is a TorchScript module; give the module that it was made of")
        for key, value in vars(part).items():
            if any(isinstance(x, Tensor) and x.grad_fn for x in tree.leaves(value)):
                raise ValueError(
                    f"it keeps an output, as weight_norm does, in {f'{path}.{key}'.lstrip('.')}: "
                    "keep x.detach(), or give a module that has not run; of weight_norm, take "
                    "that of torch.nn.utils.parametrizations"
                )
    made = copy.deepcopy(made)
    return getattr(made, "_orig_mod", made).cpu()  # what torch.compile was given


def _prepare_reset(model: nn.Module, name: str) -> Callable[[], nn.Module]:
    layers = dict(model.named_modules())  # those whose weights are all frozen keep their values
    drawn = [x for x in layers if any(w.requires_grad for w in layers[x].parameters(recurse=False))]
    if fixed := [path for path in drawn if not hasattr(layers[path], "reset_parameters")]:
        # The path of the whole model is empty.
        layer = f"{type(layers[fixed[0]]).__name__} {fixed[0]!r}".removesuffix(" ''")
        raise ConfigError(
            f"{name}: {layer} has weights and no reset_parameters, so a seed cannot draw them; "
            "give a function that makes the model, such as its class, or start='given'"
        )
    whole = [x for x in reversed(layers) if _draws_layers(layers[x])]  # after their layers
    return partial(_reset, model, [*(x for x in drawn if x not in whole), *whole])


def _draws_layers(part: nn.Module) -> bool:
    """Whether a module of several layers, not all frozen, has an initialisation of its own."""
    trained = any(weights.requires_grad for weights in part.parameters())
    return trained and hasattr(part, "reset_parameters") and any(True for _ in part.children())


def _reset(model: nn.Module, layers: list[str]) -> nn.Module:
    """A copy of a module, with these layers drawn anew."""
    made = copy.deepcopy(model)
    _draw_anew([made.get_submodule(path) for path in layers], torch.initial_seed())
    return made


def _draw_anew(layers: Iterable[nn.Module], seed: int) -> None:
    """Draw the parameters of layers from a seed, but for frozen ones."""
    with draws.Apart(seed):
        for layer in layers:
            kept = [(x, x.detach().clone()) for x in layer.parameters() if not x.requires_grad]
            layer.reset_parameters()
            for parameter, value in kept:
                parameter.data.copy_(value)


def _with_own_dropout(model: nn.Module) -> nn.Module:
    """`model`, with dropout masks that are functions of seed, client and step."""
    return _replace(model, nn.Dropout, lambda layer, salt: Dropout(layer.p, salt))


def _replace(
    model: nn.Module, kind: type, instead: Callable[[nn.Module, int], nn.Module]
) -> nn.Module:
    """`model`, with other layers for those of a kind: `instead(layer, its number)`.

    A layer that is in several places stays one layer.
    """
    made: dict[nn.Module, nn.Module] = {}
    for path, layer in [*model.named_modules(remove_duplicate=False)]:
        if type(layer) is kind:
            made[layer] = made.get(layer) or instead(layer, len(made))
            model.set_submodule(path, made[layer])
    return model
