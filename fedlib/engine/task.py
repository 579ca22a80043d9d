"""A task: one model architecture and its loss, as pure functions of parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from fedlib import draws, tree
from fedlib.engine import ambient, functional

Params = dict[str, Tensor]
PRECISIONS = ("float32", "tf32", "bfloat16")
BatchNorm = nn.modules.batchnorm._BatchNorm  # of any number of dimensions


class Batch(NamedTuple):
    """Examples of ONE client; methods never see the client dimension here."""

    x: Tensor  # [B, ...] inputs, scaled; integers if they are tokens
    y: Tensor  # [B] labels, or [B, T] of sequences; of any integer type
    index: Tensor  # [B] position of each example in its client's shard, in [0, N)
    mask: Tensor | None = None  # [B] 1 for a real example, 0 for padding; None: all are real
    key: Tensor | None = None  # [] int64, from which dropout masks are drawn
    epoch: int | Tensor = 0  # local epoch of this call of `fit`, from 0; [] in replayed steps
    train: bool = False  # whether dropout and batch statistics are active

    def mean(self, values: Tensor) -> Tensor:
        """Average of `values` [B] over the real examples -> []"""
        return values.mean() if self.mask is None else (values * self.mask).sum() / self.mask.sum()

    @property
    def size(self) -> Tensor | int:
        """Number of real examples; for each client if this is a wave of batches."""
        return self.index.shape[-1] if self.mask is None else self.mask.sum(-1)


@dataclass(frozen=True)
class Task:
    """Classification by maximum likelihood.

    Attributes:
      build: makes the module, which computes `head(body(x))` and returns logits: [B, L], or [B, 1]
        for two classes (then the logit is that of class 1), or [B, T, L] for sequences.
      dtype, device: of parameters and inputs.
      pretrained: parameters that replace the drawn ones, by name; {} for none.
      class_weights: [L] factors of the training loss by label, or None for 1. The loss is not
        divided by their sum, and evaluation ignores them.
      precision: of matrix products and convolutions. "float32" is that of `dtype`; "tf32" rounds
        their inputs to 10 bits of mantissa, on a GPU only (see `set_precision`); "bfloat16" is
        autocast to 7 bits, with parameters, losses and updates still in float32.
      mixes_examples: whether the output for an example depends on the other examples of its batch,
        in evaluation, too. Then batches are neither padded nor shared by clients.
      keeps_layout: whether images must not have channels last in memory, for this model or one
        that is used beside it.
    """

    build: Callable[[], nn.Module]
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")
    pretrained: Params = field(default_factory=dict)
    class_weights: Tensor | None = None
    precision: str = "float32"
    mixes_examples: bool = False
    keeps_layout: bool = False

    def __post_init__(self):
        """Builds the module in training and in evaluation mode, without values of parameters.

        Raises:
          ValueError: for a layer of size 0, pretrained parameters that the model does not have or
            has in another shape, or a precision that is unknown or impossible here.
        """
        self._check_precision()
        put = partial(object.__setattr__, self)
        for name, training in (("_training", True), ("_evaluating", False)):
            with draws.aside(0):  # what is frozen is the same at every seed
                module = self.build()
            shapes = {name: value.shape for name, value in _floats(module)}
            if odd := sorted(x for x, v in self.pretrained.items() if v.shape != shapes.get(x)):
                raise ValueError(f"pretrained parameters {odd} are not in the model in this shape")
            module = functional.fix_frozen(module, self.pretrained).train(training)
            put(name, _hollow(without_counts(module.to(self.device, self.dtype))))
        put("keeps_layout", self.keeps_layout or getattr(self._training, "keeps_layout", False))
        if self.class_weights is not None:
            put("class_weights", self.class_weights.to(self.device, self.dtype))
        for name, shape in self.shapes.items():
            if 0 in shape:
                raise ValueError(f"sizes must be at least 1, got {name} of shape {list(shape)}")

    def extend(self, kind: type["Task"], **more: object) -> "Task":
        """This task as an instance of `kind`, a subclass with the further fields `more`."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(Task)}, **more)

    def for_module(self, build: Callable[[], nn.Module]) -> "Task":
        """The task of another module, on this one's device, in its dtype and precision."""
        return Task(build, self.dtype, self.device, precision=self.precision)

    def move(self, device: torch.device, dtype: torch.dtype) -> Self:
        """This task elsewhere, in float32 where its precision is not possible."""
        if (device, dtype) == (self.device, self.dtype):
            return self
        fits = dtype == torch.float32 and (device.type == "cuda" or self.precision != "tf32")
        precision = self.precision if fits else "float32"
        return replace(self, device=device, dtype=dtype, precision=precision)

    def init(self, seed: int) -> Params:
        """Fresh parameters and floating-point buffers, by name; a function of `seed` alone."""
        with draws.aside(seed):
            module = self.build()
        named = {n: self.pretrained.get(n, x) for n, x in _floats(module) if n in self.shapes}
        return {name: value.detach().to(self.device, self.dtype) for name, value in named.items()}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what `init` draws, by name, without drawing it."""
        return {name: tuple(value.shape) for name, value in _floats(self._training)}

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of running statistics of batch normalisation: averaged, never trained."""
        buffers = self._training.named_buffers()
        return frozenset(name for name, value in buffers if value.is_floating_point())

    @property
    def tokens(self) -> tuple[int, int] | None:
        """Size of the vocabulary and padding token of the model's texts; None if it has none."""
        return getattr(self._training, "tokens", None)

    @property
    def is_frozen_in_part(self) -> bool:
        """Whether the model has weights that are not trained."""
        return any(isinstance(x, functional.Constant) for x in self._training.parameters())

    @property
    def may_pad(self) -> bool:
        """Whether training batches may be padded; that would change the statistics of a batch."""
        return not (self.statistics or self.mixes_examples)

    @property
    def needs_pairs(self) -> bool:
        """Whether a training batch needs two examples, because of batch normalisation.

        Every such layer needs them, unless it has `takes_single_examples`.
        """
        return self.mixes_examples or any(map(_needs_pairs, self._training.modules()))

    @cached_property
    def convolves(self) -> bool:
        """Whether the model has convolutions."""
        return any(isinstance(m, nn.modules.conv._ConvNd) for m in self._training.modules())

    @property
    def recurs(self) -> bool:
        """Whether the model has recurrent layers of PyTorch, which `vmap` cannot batch."""
        return any(isinstance(m, nn.RNNBase | nn.LSTMCell) for m in self._training.modules())

    @cached_property
    def channels_last(self) -> bool:
        """Whether images with channels last in memory may be faster."""
        return self.convolves and not self.keeps_layout

    @property
    def is_light(self) -> bool:
        """Whether a step costs less than launching it: no convolutions, few parameters."""
        size = sum(weights.numel() for weights in self._training.parameters())
        return not self.convolves and size <= 100_000

    @property
    def is_heavy(self) -> bool:
        """Whether clients should train in turn, not stacked, even on a GPU: many parameters.

        One model of this size keeps a GPU busy, and each client needs about four copies of it.
        """
        return sum(weights.numel() for weights in self._training.parameters()) > 50_000_000

    def is_statistic(self, name: str) -> bool:
        """Whether an entry of the parameters is a running statistic."""
        return name in self.statistics

    def trainable(self, params: dict) -> dict:
        """`params`, possibly nested, without the running statistics."""
        return tree.partition(params, self.is_statistic)[0]

    def split(self, params: Params) -> tuple[Params, Params]:
        """(body, head) of `params`; names keep their prefix."""
        head, body = tree.partition(params, lambda name: name.startswith("body."))
        return body, head

    def logits(self, params: Params, batch: Batch) -> Tensor:
        """Output of the whole model -> [B, ..., L]"""
        return self._call(self._module(batch), params, batch.x, batch)

    def features(self, body: Params, batch: Batch) -> Tensor:
        """The representation, which is the head's input -> [B, ..., F]"""
        return self._call(self._module(batch).body, _strip(body, "body."), batch.x, batch)

    def draws(self, make: Callable, params: Params, batch: Batch) -> bool:
        """Whether `make(self, params, batch)` of a training batch draws random numbers."""
        try:
            make(self, params, batch._replace(key=None, train=True))
        except ambient.NoKeyError:
            return True
        return False

    def head_logits(self, head: Params, features: Tensor, batch: Batch) -> Tensor:
        """Output of the head on `features` [B, ..., F] -> [B, ..., L]"""
        return self._call(self._module(batch).head, _strip(head, "head."), features, batch)

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the model: the length of its head's last bias or matrix."""
        parameters = [*self._training.head.parameters()]
        matrices, last = [x for x in parameters if x.dim() == 2], parameters[-1]
        if matrices and (not last.dim() or len(last) not in matrices[-1].shape):  # a scale
            last = matrices[-1]
        return len(last)

    @property
    def num_labels(self) -> int:
        """L; a single output is the logit of the second of two labels."""
        return max(2, self.num_outputs)

    @property
    def num_features(self) -> int:
        """F, the number of inputs of the head's first matrix; ValueError if it has no matrix."""
        head = dict(self._training.head.named_parameters())
        matrices = [weight for weight in head.values() if weight.dim() == 2]
        if not matrices:
            raise ValueError(f"the model needs a linear head, got {sorted(head) or 'none'}")
        # Before its matrix, `weight_norm` keeps the scales of its rows, [L, 1].
        return next((x.shape[1] for x in matrices if x.shape[1] > 1), 1)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Names of the body's layers, such as "body.0"; none unless the body is Sequential."""
        body = self._training.body
        names = body._modules if isinstance(body, nn.Sequential) else ()
        return tuple(f"body.{name}" for name in names)

    def part(self, prefix: str, params: Params, inputs: Tensor, batch: Batch) -> Tensor:
        """Output of the submodule `prefix`, such as "body.0"; uses only its entries of `params`."""
        own = {name: value for name, value in params.items() if name.startswith(f"{prefix}.")}
        module = self._module(batch).get_submodule(prefix)
        return self._call(module, _strip(own, f"{prefix}."), inputs, batch)

    def log_probs(self, params: Params, batch: Batch) -> Tensor:
        """Log-probabilities of the classes -> [B, ..., L]"""
        return log_probs(self.logits(params, batch))

    def losses(self, params: Params, batch: Batch) -> Tensor:
        """Training loss of every example, class weights included -> [B]"""
        return nll(self.log_probs(params, batch), batch.y, self.class_weights)

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Mean loss over the batch -> []"""
        return batch.mean(self.losses(params, batch))

    def _module(self, batch: Batch) -> nn.Module:
        return self._training if batch.train else self._evaluating

    def _call(self, module: nn.Module, params: Params, inputs: Tensor, batch: Batch) -> Tensor:
        with ambient.dropout_key(batch.key):
            if self.precision != "bfloat16":
                return functional.call(module, params, inputs)
            # Without autocast's cache: captured steps must not read it (`fedlib.engine.graphs`).
            with torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False):
                outputs = functional.call(module, params, inputs)
            return outputs.to(self.dtype)

    def _check_precision(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {PRECISIONS}, got {self.precision!r}")
        if self.precision == "float32":
            return
        if self.dtype != torch.float32:
            raise ValueError(f"precision {self.precision} is of float32 models, got {self.dtype}")
        if self.precision == "tf32" and self.device.type != "cuda":
            raise ValueError(
                f"precision tf32 needs a GPU, the device is {self.device.type}; use float32 or "
                "bfloat16"
            )


@dataclass(frozen=True)
class JointTask(Task):
    """The task of a cohort whose clients train several modules, or modules of several kinds.

    Properties of the architecture (running statistics, need of two examples) cover all modules;
    models and losses are those of the first.

    Attributes:
      others: the further tasks; names of their parameters may be the same as the first one's.
    """

    others: tuple[Task, ...] = ()

    def __post_init__(self):
        """Raises ValueError if one module trains a name that is a running statistic of another."""
        super().__post_init__()
        for task in (self, *self.others):
            trained = {name for name, _ in task._training.named_parameters()}
            if both := sorted(trained & self.statistics):
                raise ValueError(f"{both} are running statistics of one module, trained in another")

    @cached_property
    def statistics(self) -> frozenset[str]:
        """Names of the running statistics of all modules."""
        return super().statistics.union(*(task.statistics for task in self.others))

    @property
    def needs_pairs(self) -> bool:
        """Whether any module needs two examples in a training batch."""
        return super().needs_pairs or any(task.needs_pairs for task in self.others)

    @cached_property
    def convolves(self) -> bool:
        """Whether any module has convolutions."""
        return super().convolves or any(task.convolves for task in self.others)


def set_precision(task: Task) -> None:
    """Set the precision of this process on a GPU to that of `task`; nothing to do for a CPU.

    PyTorch has one switch for the whole process, and computes convolutions in TF32 by default.
    """
    if task.device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = task.precision == "tf32"
        torch.backends.cudnn.allow_tf32 = task.precision == "tf32"


def log_probs(logits: Tensor) -> Tensor:
    """Log-softmax; a single logit is that of class 1 of two: [..., L] -> [..., max(L, 2)]"""
    if logits.shape[-1] == 1:
        return nn.functional.logsigmoid(torch.cat([-logits, logits], dim=-1))
    return logits.log_softmax(-1)


def nll(log_probs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Negative log-probability of each example's label -> [B]

    Args:
      log_probs: [B, L], or [B, T, L] for sequences: the mean over their T labels.
      y: [B] or [B, T] labels.
      class_weights: [L], factors of the loss of each label; see `Task`.
    """
    return mean_from(1, element_nll(log_probs, y, class_weights))


def element_nll(log_probs: Tensor, y: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Negative log-probability of every label, times its class weight: [..., L] -> [...]"""
    y = y.long()  # labels of long sequences are stored in one byte each
    losses = -log_probs.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return losses if class_weights is None else losses * class_weights[y]


def mean_from(dim: int, values: Tensor) -> Tensor:
    """Mean over dimension `dim` and all later ones; `values` themselves if there are none."""
    return values.flatten(dim).mean(dim) if values.dim() > dim else values


def _floats(module: nn.Module):
    named = [*module.named_parameters(), *module.named_buffers()]
    floats = [(name, value) for name, value in named if value.is_floating_point()]
    return [pair for pair in floats if not isinstance(pair[1], functional.Constant)]


def without_counts(module: nn.Module) -> nn.Module:
    """`module`, in which batch normalisation counts batches only if it needs the count."""
    for layer in module.modules():
        if isinstance(layer, BatchNorm) and layer.momentum is not None:
            layer.num_batches_tracked = None
    return module


def _hollow(module: nn.Module) -> nn.Module:
    """`module` without memory for parameters and statistics, which every call provides.

    Tied parameters stay tied.
    """
    for spots in functional.places(module).values():
        where, key = spots[0]
        hollow = where[key].detach().to("meta")
        if isinstance(where[key], nn.Parameter):
            hollow = nn.Parameter(hollow, False)
        for where, key in spots:
            where[key] = hollow
    return module


def _needs_pairs(layer: nn.Module) -> bool:
    needed = isinstance(layer, BatchNorm) and layer.training
    return needed and not getattr(layer, "takes_single_examples", False)


def _strip(params: Params, prefix: str) -> Params:
    return {name.removeprefix(prefix): value for name, value in params.items()}
