"""The comparison of two versions of this project sees what differs, and nothing else."""

import h5py
import numpy as np
import pytest
import same
import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def png(path, value, said):
    info = PngInfo()
    info.add_text("Software", said)
    Image.new("L", (2, 2), value).save(path, pnginfo=info)


def state(path, value, said):
    torch.save({"w": torch.tensor([value])}, path)


def history(path, value, said):
    with h5py.File(path, "w") as file:
        file["scores/correct"] = np.array([value])
        file.attrs["host"] = said


def svg(path, value, said):
    path.write_text(f"<svg><metadata>{said}</metadata><g id='{value}'/></svg>")


@pytest.mark.parametrize(
    "write, name", [(png, "a.png"), (state, "a.pt"), (history, "a.h5"), (svg, "a.svg")]
)
def test_content_is_compared_and_what_is_said_about_it_is_not(write, name, tmp_path):
    digests = []
    for number, (value, said) in enumerate([(1, "one"), (1, "two"), (2, "one")]):
        (folder := tmp_path / str(number)).mkdir()
        write(folder / name, value, said)
        digests += [digest for _, digest in same._files(folder, "")]
    first, renamed, changed = digests
    assert first == renamed != changed
