"""Calls of a module with given parameters: a cheaper `torch.func.functional_call`.

`functional_call` looks up every parameter by its dotted name in every call. Here the places of a
module's parameters are found once; a call puts tensors there and restores the module afterwards.
"""

import copy
import threading
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn


class Constant(nn.Parameter):
    """A parameter that is the same in all models and never trained: no part of their parameters."""

    def __reduce_ex__(self, protocol: object) -> tuple:
        """A copy has this class, too, which PyTorch would not keep."""
        return Constant, (self.detach(), False)


def fix_frozen(model: nn.Module, values: dict[str, Tensor]) -> nn.Module:
    """`model`, whose frozen parameters are no part of what clients train and send.

    Args:
      values: of parameters, by name, instead of their own.
    """
    fixed: dict[nn.Parameter, Constant] = {}  # a tied one stays tied
    for path, layer in model.named_modules():
        for name, value in layer._parameters.items():
            if value is not None and not value.requires_grad:
                own = values.get(f"{path}.{name}".lstrip("."), value).detach()
                layer._parameters[name] = fixed.setdefault(value, Constant(own, False))
    return model


Places = dict[str, list[tuple[dict, str]]]  # by name: (a module's own dict, key in it)

_local = threading.local()


def call(module: nn.Module, params: dict[str, Tensor], *inputs: Tensor) -> Tensor:
    """`module(*inputs)` with the parameters and floating-point buffers `params`.

    Running statistics in `params` are updated in place in training mode, also where the module
    assigns new ones. Safe to call from several threads: each has its own copy of the module, though
    not of its tensors.

    Raises:
      ValueError: unless `params` has exactly the names of the module's parameters and buffers.
    """
    own, places = _prepare(module)
    if params.keys() != places.keys():
        odd = sorted(params.keys() ^ places.keys())
        raise ValueError(f"parameters do not fit the module: {odd} are on one side only")
    before = [(where, key, where[key]) for spots in places.values() for where, key in spots]
    try:
        for name, spots in places.items():
            for where, key in spots:
                where[key] = params[name]
        outputs = own(*inputs)
        if own.training:
            _copy_back(places, params)
        return outputs
    finally:
        for where, key, value in before:
            where[key] = value


@torch.no_grad()
def _copy_back(places: Places, params: dict[str, Tensor]) -> None:
    """Copy tensors that the module put in place of those of `params` into these."""
    for name, spots in places.items():
        for where, key in spots:
            if where[key] is not params[name]:
                params[name].copy_(where[key])


def _prepare(module: nn.Module) -> tuple[nn.Module, Places]:
    """This thread's copy of `module`, and the places of its tensors."""
    if not hasattr(_local, "prepared"):
        _local.prepared = WeakKeyDictionary()
    if module not in _local.prepared:
        tensors = [*module.parameters(), *module.buffers()]
        own = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
        _local.prepared[module] = own, places(own)
        for layer in own.modules():
            for name, value in layer._parameters.items():
                if isinstance(value, Constant):  # which `torch.export` cannot follow
                    layer._parameters[name] = nn.Parameter(value.detach(), False)
    return _local.prepared[module]


def places(module: nn.Module) -> Places:
    """All places of each parameter and floating-point buffer; a tied one has several."""
    names, found = {}, {}
    for prefix, part in module.named_modules():
        for where in (part._parameters, part._buffers):
            for key, value in where.items():
                if value is None or not value.is_floating_point() or isinstance(value, Constant):
                    continue
                name = names.setdefault(id(value), f"{prefix}.{key}" if prefix else key)
                found.setdefault(name, []).append((where, key))
    return found
