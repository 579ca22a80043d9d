"""Memory that the engine frees stays with the process."""

import platform

import pytest
from workflow import python

KEEPING = """
import resource
from fedlib.engine import allocator
allocator.keep()
faults = []
for _ in range(4):
    block = bytearray(2**26)
    del block
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[0])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_memory_that_a_job_frees_is_not_asked_of_the_system_again():
    # Three blocks of 64 MiB would be 49,152 pages.
    done = python("-c", KEEPING)
    assert int(done.stdout) < 1000, done.stderr
