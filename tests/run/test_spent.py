"""What jobs take of their machine is in the record of a run, also over an interruption."""

import subprocess
import sys

import torch

from fedlib.run.checkpoint import Checkpoints
from fedlib.run.usage import CPU, MEMORY, WALL, Usage


def test_what_was_used_before_counts():
    before = {WALL: 1000.0, CPU: 2000.0, MEMORY: 10**15}
    now, alone = Usage(before)(), Usage()()
    assert 1000 <= now[WALL] < 1001 and 2000 + alone[CPU] <= now[CPU] + 1 < 2002 + alone[CPU]
    assert now[MEMORY] == 10**15 and 10**7 < alone[MEMORY] < 10**12


def test_a_checkpoint_says_what_was_used_when_it_was_saved(tmp_path):
    used = iter([{CPU: 1.0}, {CPU: 3.0}])
    checkpoints = Checkpoints(tmp_path, {"spec": 1}, spent=lambda: next(used))
    for number in (1, 2):
        checkpoints.save(number, {"x": torch.zeros(1)})
    assert Checkpoints(tmp_path, {"spec": 1}).usage() == {CPU: 3.0}


def test_what_the_process_takes_that_starts_a_job_does_not_count():
    large = torch.ones(3 * 10**7)  # 120 MB besides PyTorch
    code = "from fedlib.run.usage import Usage; print(Usage()()['memory_bytes'])"
    assert int(subprocess.check_output([sys.executable, "-c", code])) < large.nbytes
