"""The predictor of one client, as a PyTorch module."""

import re
from collections.abc import Hashable, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from fedlib import draws, tree
from fedlib.api.model import whole
from fedlib.data.checks import column_places
from fedlib.engine.device import TOKENS, DeviceData
from fedlib.engine.task import Batch, Params, Task
from fedlib.errors import ConfigError
from fedlib.federation import array_digest
from fedlib.methods.base import Method
from fedlib.run import checkpoint
from fedlib.run.build import map_tasks, with_tasks


class ClientModel(nn.Module):
    """A client's own predictor: inputs [B, ...] -> probabilities of the classes [B, L]

    For a mixture it is the whole mixture, with the client's weights. Inputs have the form in which
    the federation was given: pixels are bytes, grey images may be [B, H, W], and the columns of a
    data frame are found by name. It can be pickled, if the model is a module or a class.
    """

    def __init__(self, method: Method, personal: Any, data: DeviceData):
        super().__init__()
        self._method = method
        self._shape, self._type = data.x.shape[1:], data.x.dtype
        self._scales = data.federation.mean, data.federation.std
        names, tokens = data.federation.column_name, data.federation.tokens
        self._token = int(tokens is not None and tokens.pad == 0)  # one that is no padding
        self._columns = None if names is None else names.tolist()
        self._data = copy(data)  # to scale inputs, without the examples
        self._data.federation = self._data.x = self._data.y = self._data.rows = None
        # PyTorch allows no dots in names: "body/0/weight", or "0/body/0/weight" of several models.
        paths = checkpoint.flatten(personal)
        self._names = ["/".join(["client", *re.findall(r"\w+", path)]) for path in paths]
        for name, leaf in zip(self._names, tree.leaves(personal), strict=True):
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf.clone())
        # The structure alone: weights are in the buffers, which can be moved to a device.
        self._personal = tree.map(lambda x: None if isinstance(x, Tensor) else x, personal)
        self.eval()

    def forward(self, x: Any) -> Tensor:
        """Probabilities of the classes: [B, ...] -> [B, L]

        Raises:
          ConfigError: for inputs with another shape, type or columns than the federation's.
        """
        x = as_inputs(x, self._shape, self._type, self._columns)
        return self._method.predict(self._own(), self._batch(self._scale_inputs(x))).exp()

    @property
    def network(self) -> nn.Module:
        """The model given to `fedlib.simulate`, with the client's weights; its outputs are logits.

        Raises:
          ConfigError: for a client that predicts with more than one model.
        """
        self.to(self._like.device)  # tasks, too, where torch.load moved the weights alone
        personal = self._own()
        # Of methods with several architectures, see `fedlib.methods.parts.own_models.Own`.
        task = getattr(personal, "task", self._method.task)
        params = getattr(personal, "model", personal)
        if not self._predicts_with(task, params, personal):
            raise ConfigError(
                f"a client of {type(self._method).__name__} predicts with more than one model's "
                "logits; use the module that client_model gives, which does all of it"
            )
        with draws.aside(0), torch.no_grad():  # as a task draws what is frozen
            module, given = task.build().to(self._like), task.pretrained | params
            for name, value in [*module.named_parameters(), *module.named_buffers()]:
                if name in given:
                    value.copy_(given[name])
        return whole(module).eval()

    @property
    def key(self) -> tuple[Hashable, list]:
        """(equal for clients whose predictions are those of one model, what its ids are of).

        It is of clients of one run, whose modules were not moved.
        """
        raw = (x.flatten().view(torch.uint8).cpu().numpy() for x in self.buffers())
        others = tree.leaves(self._personal)
        return (*map(array_digest, raw), *map(id, others)), others

    @property
    def _like(self) -> Tensor:
        """A tensor of the device and type of the client's weights."""
        return next(x for x in self.buffers() if x.is_floating_point())

    def _apply(self, *args: Any) -> Self:
        """As `nn.Module._apply`, also for what is frozen, and for buffers of whole numbers."""
        super()._apply(*args)
        device, dtype = self._like.device, self._like.dtype
        self._method = with_tasks(self._method, lambda x: x.move(device, dtype))
        self._personal = map_tasks(self._personal, lambda x: x.move(device, dtype))
        return self

    def _own(self) -> Any:
        """The client's weights, where this module was moved."""
        leaves = zip(self._names, tree.leaves(self._personal), strict=True)
        return tree.unflatten([self._buffers.get(name, x) for name, x in leaves], self._personal)

    def _scale_inputs(self, x: Tensor) -> Tensor:
        """Inputs that are no pixels, as the federation's were scaled when they were read."""
        if self._type == torch.uint8 or not self._scales[0]:
            return x
        shape = 1, -1, *[1] * (x.dim() - 2)
        mean, std = (torch.tensor(v, dtype=torch.float64).reshape(shape) for v in self._scales)
        return ((x.double() - mean.to(x.device)) / std.to(x.device)).to(x.dtype)

    def _batch(self, x: Tensor) -> Batch:
        """A batch of these inputs, scaled, on the device where the client's weights are."""
        data, like = copy(self._data), self._like
        data.x, data.device, data.dtype = x.to(like.device), like.device, like.dtype
        if data._scale is not None:
            data._scale, data._shift = data._scale.to(like), data._shift.to(like)
        index = torch.arange(x.shape[0], device=data.device)
        return Batch(data.inputs(index), index, index)

    def _predicts_with(self, task: Task, params: Params, personal: Any) -> bool:
        """Whether the client's predictions are those of one model: it is tried on two inputs."""
        if not isinstance(params, dict):
            return False
        if {name: getattr(x, "shape", None) for name, x in params.items()} != task.shapes:
            return False
        x = torch.rand(2, *self._shape, generator=torch.Generator().manual_seed(0))
        x = torch.full_like(x, self._token) if self._type in TOKENS else x
        batch = self._batch((255 * x if self._type == torch.uint8 else x).to(self._type))
        found, expected = self._method.predict(personal, batch), task.log_probs(params, batch)
        return torch.equal(found.nan_to_num(), expected.nan_to_num())


def _in_order(x: Any, columns: Sequence[str] | None) -> Any:
    """A data frame, whose columns are put in the order of the federation's, if both have names.

    Where one has words, 0, 1, ... of the other are no names: pandas numbers columns without any.

    Raises:
      ConfigError: for other columns.
    """
    names = [*map(str, getattr(x, "columns", ()))]
    if columns is None or not names:
        return x
    are_numbers = [all(map(str.isdigit, each)) for each in (names, columns)]
    if [*map(str, range(len(names)))] in (names, columns) and not all(are_numbers):
        return x
    if {*names} != {*columns}:  # those of a CSV file are in lower case
        names = [name.strip().casefold() for name in names]
    try:
        return x.iloc[:, column_places(names, columns)]
    except ConfigError as error:
        raise ConfigError(f"inputs and the federation: {error}") from None


def as_inputs(
    x: Any, shape: Sequence[int], kind: torch.dtype, columns: Sequence[str] | None
) -> Tensor:
    """Inputs of a user as they are in a federation, with that shape [...] and type -> [B, ...]

    Args:
      columns: names of the federation's, by which those of a data frame are found; None for none.

    Raises:
      ConfigError: if they cannot be.
    """
    x = _in_order(x, columns)
    try:
        kinds = {one.kind for one in getattr(x, "dtypes", ())}  # of a table's columns
        number = "f8" if kinds and kinds <= {*"biuf"} else None
        x = x if isinstance(x, Tensor) else torch.from_numpy(np.array(x, number))
    except (TypeError, ValueError, RuntimeError):
        raise ConfigError(f"inputs must be an array of numbers, got {type(x)}") from None
    if x.dim() == len(shape) and shape[0] == 1:
        x = x.unsqueeze(1)
    same = x.dtype == kind or {x.dtype, kind} <= {*TOKENS}
    others = (x.dtype != torch.uint8 or len(shape) == 1) and kind not in (torch.uint8, *TOKENS)
    if x.shape[1:] != tuple(shape) or not (same or others) or x.is_complex():
        raise ConfigError(
            f"inputs must be {kind} of shape [B, {', '.join(map(str, shape))}], as the "
            f"federation's, got {x.dtype} of shape {list(x.shape)}"
        )
    made = x.to(kind)
    if x.dtype == torch.float64 and made.isinf().any():
        raise ConfigError("inputs must be numbers that float32 can hold, below 3.4e38; scale them")
    return made
