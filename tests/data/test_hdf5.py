"""HDF5 files that are whole, or an error, wherever the disk is full."""

import fcntl
import re

import h5py
import numpy as np
import pytest
from workflow import ROOT, python

from fedlib import hdf5

# In a process of its own, as HDF5 may end it. No file may be longer than the limit.
ON_A_FULL_DISK = """
import errno, resource, sys
import numpy as np
from fedlib import hdf5

def write(path):
    with hdf5.create(path, userblock_size=512) as file:
        for number in range(6):
            file.create_dataset(f"group{number}/x", data=np.arange(100 * number))
        file.attrs.update(format=1, text="x" * 200)

write(sys.argv[1] + "/whole.h5")
size = open(sys.argv[1] + "/whole.h5", "rb").seek(0, 2)
told = 0
for limit in range(0, size, 97):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write(f"{sys.argv[1]}/{limit}.h5")
    except OSError as error:
        told += error.errno == errno.EFBIG
assert told == len(range(0, size, 97)) > 50, told
"""


def test_a_full_disk_is_an_error_wherever_the_file_stops(tmp_path):
    done = python("-c", ON_A_FULL_DISK, tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_was_written_is_read_again(tmp_path):
    x = np.random.default_rng(0).random((300, 7))
    with hdf5.create(tmp_path / "x.h5", userblock_size=512) as file:
        file.create_dataset("a/x", data=x)
        file.create_dataset("packed", data=x, compression="gzip")
        file.attrs["name"] = "é"
    with h5py.File(tmp_path / "x.h5") as file:
        assert file.userblock_size == 512 and file.attrs["name"] == "é"
        assert np.array_equal(file["a/x"], x) and np.array_equal(file["packed"], x)


def test_an_error_of_who_writes_is_that_error(tmp_path):
    with pytest.raises(KeyError), hdf5.create(tmp_path / "x.h5") as file:
        file["nothing"]


def test_a_file_is_read_without_a_lock_which_not_every_file_system_has(tmp_path):
    with hdf5.create(tmp_path / "x.h5") as file:
        file["x"] = 3
    with (tmp_path / "x.h5").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # so that another lock fails
        with hdf5.open_file(tmp_path / "x.h5") as file:
            assert file["x"][()] == 3


def test_no_other_module_opens_a_file_of_hdf5():
    opens = re.compile(r"h5py\.File\(")
    programs = [*ROOT.glob("fedlib/**/*.py"), *ROOT.glob("scripts/*.py")]
    assert [file.name for file in programs if opens.search(file.read_text())] == ["hdf5.py"]
