"""The operations of a step, noted below autograd, and a function that repeats them.

`Recorder` notes every operation that PyTorch executes inside its block, also in backward passes,
and refuses steps that are not functions of their input tensors. `write_program` writes a Python
function of them: the same operations on the same arguments in the same order, so the same bits,
without modules, trees and autograd. It omits copies of references and operations that undo each
other, and computes constants once.
"""

import types
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedlib import tree

aten = torch.ops.aten
# Operations whose result equals their argument, because there is no autograd to detach from.
SAME = {aten.detach.default, aten.alias.default}
# Operations whose values depend only on shapes and on arguments that are not tensors.
FILLED = {"ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full", "zeros",
          "ones", "full", "arange", "scalar_tensor"}  # fmt: skip
DRAWS = torch.Tag.nondeterministic_seeded
BY_VALUE = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
# What reads values of tensors without an operation that says so.
EXITS = {"tolist", "numpy", "__array__", "__dlpack__", "tensor_split", "_pack_padded_sequence"}


class Call(NamedTuple):
    """An operation, its arguments and its result: nested tensors and other values."""

    op: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    result: object


class Line(NamedTuple):
    """A line of Python: `targets = text`.

    Attributes:
      targets: names, "_" for a result that needs none.
      several: whether the result is unpacked into them.
      uses: names of tensors in `text` that are not constants.
      is_view: whether the result is a view of a tensor.
    """

    targets: list[str]
    several: bool
    text: str
    uses: list[str]
    is_view: bool


class _Exits(TorchFunctionMode):
    """Notes whether numbers leave PyTorch inside its block, as nothing shows what uses them."""

    found = ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in EXITS:
            self.found = f"Tensor.{name} gives numbers to other code"
        return func(*args, **(kwargs or {}))


class Recorder(TorchDispatchMode):
    """Notes the operations inside its block, which are executed as usual.

    Attributes:
      calls: the operations, in order; keeps all tensors alive, so that their ids stay unique.
      refused: why the calls cannot be repeated; "" if they can.
    """

    def __init__(self, inputs: list[Tensor]):
        super().__init__()
        self.calls: list[Call] = []
        self.refused = ""
        self._exits = _Exits()
        self._known = {id(x) for x in inputs}
        if len(self._known) < len(inputs):
            self.refused = "one tensor in two places"

    def __enter__(self):
        """Begin to note."""
        self._exits.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        """Note no more."""
        super().__exit__(*error)
        self._exits.__exit__(*error)
        self.refused = self.refused or self._exits.found

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False, because shielding this class from the compiler would import the compiler."""
        return False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        """Execute and note an operation; a step is never stopped half way."""
        kwargs = kwargs or {}
        result = op(*args, **kwargs)
        call = Call(op, args, kwargs, result)
        self.calls.append(call)
        self.refused = self.refused or self._reason(call)
        self._known |= {id(x) for x in tensors(result)}
        return result

    def _reason(self, call: Call) -> str:
        """Why a call cannot be repeated, or ""."""
        tags = {*call.op.tags}
        by_number = call.op is aten.index.Tensor and not any(
            x.dtype in (torch.bool, torch.uint8) for x in tensors(call.args[1])
        )
        if DRAWS in tags:
            return f"{call.op} draws PyTorch's own random numbers"
        if BY_VALUE & tags and not by_number:
            return f"{call.op} depends on values"
        if any(id(x) not in self._known for x in tensors((call.args, call.kwargs))):
            return f"{call.op} reads a tensor that the step was not given"
        return ""

    def reason_of(self, outputs: list[Tensor]) -> str:
        """Why `outputs` cannot be computed again, or ""."""
        known = all(id(x) in self._known for x in outputs)
        return "" if known else "the step leaves a tensor that no operation made"


def write_program(calls: list[Call], inputs: list[Tensor], outputs: list[Tensor]) -> Callable:
    """A function of tensors like `inputs` that repeats `calls` and returns `outputs` in a list.

    If a step changes tensors in place, its outputs may be among the inputs.
    """
    writer = _Writer(inputs, _constants(calls, outputs))
    for call in calls:
        writer.write(call)
    return writer.function(outputs)


class _Writer:
    """Writes Python, a line for each call.

    Attributes:
      names: of all tensors, by id.
      globals: other objects in the lines, by name.
    """

    def __init__(self, inputs: list[Tensor], constants: set[int]):
        self.inputs = [f"i{number}" for number in range(len(inputs))]
        self.names = {id(x): name for x, name in zip(inputs, self.inputs, strict=True)}
        self.globals: dict[str, object] = {}
        self._constants = constants
        self._turned: dict[str, str] = {}  # name of a matrix, by the name of its transpose
        self._lines: list[Line] = []

    def write(self, call: Call) -> None:
        """Add the line of a call, if it needs one."""
        results = call.result if isinstance(call.result, list | tuple) else [call.result]
        if call.op in SAME:
            self.names[id(call.result)] = self.names[id(call.args[0])]
            return
        if id(results[0]) in self._constants:
            for x in tensors(results):
                self.names[id(x)] = self._global(x)
            return
        if call.op is aten.t.default and (known := self._turned.get(self._text(call.args[0]))):
            self.names[id(call.result)] = known
            return
        uses: list[str] = []
        arguments = [self._text(x, uses) for x in call.args]
        arguments += [f"{key}={self._text(x, uses)}" for key, x in call.kwargs.items()]
        text = f"{self._global(_quick(call.op))}({', '.join(arguments)})"
        targets = [self._target(x) for x in results]
        if call.op is aten.t.default:
            self._turned[targets[0]] = uses[0]
        several = isinstance(call.result, list | tuple)
        self._lines.append(Line(targets, several, text, uses, call.op.is_view))

    def function(self, outputs: list[Tensor]) -> Callable:
        """The function; it drops names after their last use, as Python would."""
        returned = [self.names[id(x)] for x in outputs]
        alive, body = {*returned, *self.inputs, "_"}, []
        for line in reversed(self._lines):
            own = [name for name in line.targets if name != "_"]
            if line.is_view and not alive.intersection(own):
                continue  # unused
            last = dict.fromkeys(name for name in [*line.uses, *own] if name not in alive)
            if last:
                body.append(f"{' = '.join(last)} = None")
            alive.update(line.uses)
            target = ", ".join(line.targets) + "," * line.several
            body.append(f"{target} = {line.text}" if own else line.text)
        lines = [*reversed(body), f"return [{', '.join(returned)}]"]
        source = f"def step({', '.join(self.inputs)}):\n " + "\n ".join(lines)
        exec(source, self.globals)  # noqa: S102
        return self.globals["step"]

    def _target(self, x: object) -> str:
        if not isinstance(x, Tensor) or id(x) in self.names:  # nothing, or changed in place
            return "_"
        return self.names.setdefault(id(x), f"t{len(self.names)}")

    def _text(self, x: object, uses: list[str] | None = None) -> str:
        """An argument as Python text."""
        if isinstance(x, Tensor):
            name = self.names[id(x)]
            if uses is not None and name not in self.globals:
                uses.append(name)
            return name
        if isinstance(x, list | tuple):
            return f"[{', '.join(self._text(y, uses) for y in x)}]"
        return repr(x) if isinstance(x, int | str | None) else self._global(x)

    def _global(self, x: object) -> str:
        name = f"g{len(self.globals)}"
        self.globals[name] = x
        return name


def _constants(calls: list[Call], outputs: list[Tensor]) -> set[int]:
    """Ids of the results that are the same in every call; none if one of them may change."""
    found: set[int] = set()
    for call in calls:
        given = [id(x) for x in tensors((call.args, call.kwargs))]
        name = call.op._schema.name.partition("::")[2]
        if call.op._schema.is_mutable and found.intersection(given):
            return set()
        if name in FILLED or (given and found.issuperset(given)):
            found |= {id(x) for x in tensors(call.result)}
    return found if found.isdisjoint(map(id, outputs)) else set()


def _quick(op: torch._ops.OpOverload) -> Callable:
    """The binding of an operation that is cheapest to call."""
    space, _, name = op._schema.name.partition("::")
    if space == "aten" and "Tensor?[]" not in str(op._schema):  # bindings take no None in it
        for where in (torch, torch._C._nn, Tensor):
            found = getattr(where, name, None)
            if isinstance(found, types.BuiltinFunctionType | types.MethodDescriptorType):
                return found
    return op


def tensors(x: object) -> list[Tensor]:
    """All tensors in nested dicts, tuples and lists, such as the arguments of an operation."""
    return [leaf for leaf in tree.leaves(x) if isinstance(leaf, Tensor)]
