"""The predictor of one client, as a PyTorch module."""

import re
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from fedlib import tree
from fedlib.api.model import whole
from fedlib.engine.device import DeviceData
from fedlib.engine.task import Batch
from fedlib.errors import ConfigError
from fedlib.methods.base import Method
from fedlib.run import checkpoint


class ClientModel(nn.Module):
    """A client's own predictor: inputs [B, ...] -> probabilities of the classes [B, L]

    For a mixture it is the whole mixture, with the client's weights. Inputs have the form of the
    federation's; pixels are bytes. It can be pickled, if the model is a module or a class.
    """

    def __init__(self, method: Method, personal: Any, data: DeviceData):
        super().__init__()
        self._method, self._personal = method, personal
        self._shape, self._type = data.x.shape[1:], data.x.dtype
        self._data = copy(data)  # to scale inputs, without the examples
        self._data.federation = self._data.x = self._data.y = self._data.rows = None
        # PyTorch allows no dots in names: "body/0/weight", or "0/body/0/weight" of several models.
        paths = checkpoint.flatten(personal)
        self._names = ["/".join(["client", *re.findall(r"\w+", path)]) for path in paths]
        for name, leaf in zip(self._names, tree.leaves(personal), strict=True):
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf.clone())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities of the classes: [B, ...] -> [B, L]

        Raises:
          ConfigError: for inputs with another shape or type than the federation's.
        """
        x = torch.as_tensor(x)
        bytes_and_numbers = (x.dtype == torch.uint8) != (self._type == torch.uint8)
        if x.shape[1:] != self._shape or bytes_and_numbers:
            raise ConfigError(
                f"inputs must be {self._type} of shape [B, {', '.join(map(str, self._shape))}], as "
                f"the federation's, got {x.dtype} of shape {list(x.shape)}"
            )
        data = copy(self._data)
        data.x = x.to(data.device)
        index = torch.arange(len(x), device=data.device)
        leaves = zip(self._names, tree.leaves(self._personal), strict=True)
        own = [self._buffers.get(name, leaf) for name, leaf in leaves]
        personal = tree.unflatten(own, self._personal)
        return self._method.predict(personal, Batch(data.inputs(index), index, index)).exp()

    @property
    def network(self) -> nn.Module:
        """The model given to `fedlib.simulate`, with the client's weights; its outputs are logits.

        Raises:
          ConfigError: for a client that predicts with more than one model.
        """
        method, task = self._method, self._method.task
        kind, named = type(method), task.init(0)
        steps = ("predict", "outputs", "decide")
        plain = all(getattr(kind, name) is getattr(Method, name) for name in steps)
        if not plain or not isinstance(self._personal, dict) or self._personal.keys() != {*named}:
            raise ConfigError(
                f"a client of {kind.__name__} predicts with more than one model; use the module "
                "that client_model gives, which does all of it"
            )
        module = task.build().to(task.device, task.dtype)
        module.load_state_dict(self._personal, strict=False)
        return whole(module).eval()
