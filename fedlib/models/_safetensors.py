"""Reads the file format "safetensors", in which weights are published that no code is run for.

Eight bytes say how long a header is, little-endian; the header, JSON, gives each tensor's kind,
shape and place; and the tensors' bytes follow, also little-endian, without gaps.

Source: huggingface/safetensors, section "Format" of its README.
"""

import json
import math
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from fedlib.errors import DataError

KINDS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
PREFIX = 8  # bytes that give the header's length


def load(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, in memory.

    Raises:
      DataError: if it is truncated, or not such a file.
    """
    size = file.stat().st_size
    with file.open("rb") as content:
        start = PREFIX + int.from_bytes(content.read(PREFIX), "little")
        if start > size:
            raise DataError(f"{file} is truncated, or not a safetensors file")
        try:
            header = json.loads(content.read(start - PREFIX))
            places = {n: _place(**header[n]) for n in header if n != "__metadata__"}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file} is not a safetensors file: {error!r}") from None
        expected = start
        for _, _, (begin, end) in sorted(places.values(), key=lambda place: place[2]):
            if start + begin != expected:
                raise DataError(f"{file} is damaged: there is a gap between its tensors")
            expected = start + end
        if expected != size:
            raise DataError(f"{file} has {size:,} bytes, and its tensors end at {expected:,}")
        return {name: _tensor(content, start, *place) for name, place in places.items()}


def _place(
    dtype: str, shape: list[int], data_offsets: list[int]
) -> tuple[torch.dtype, tuple[int, ...], tuple[int, int]]:
    """Kind, shape and place of a tensor, in bytes behind the header, if they go together."""
    kind, (begin, end) = KINDS[dtype], data_offsets
    if min(shape, default=0) < 0 or end - begin != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{end - begin} bytes for {shape} of {dtype}")
    return kind, tuple(shape), (begin, end)


def _tensor(
    content: BinaryIO, start: int, kind: torch.dtype, shape: tuple[int, ...], place: tuple[int, int]
) -> Tensor:
    begin, end = place
    if begin == end:
        return torch.empty(shape, dtype=kind)
    content.seek(start + begin)
    # A copy of its own: in the file a tensor need not begin where its kind may.
    return torch.frombuffer(bytearray(content.read(end - begin)), dtype=kind).reshape(shape)
