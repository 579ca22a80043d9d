"""NaN in one client: in its data, and in its training. No number is made of it."""

from dataclasses import replace

import numpy as np
import pytest
import stages
from support import toy_federation

from fedlib.errors import DataError


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_not_finite_is_refused_with_its_client(value):
    federation = toy_federation((7, 12, 6, 10))
    row = int(federation.train.of(2)[0])
    x = federation.x.copy()
    x[row, 1] = value
    with pytest.raises(DataError, match=rf"row {row}, of client 2, has NaN or infinity \(1 such"):
        replace(federation, x=x)


def test_a_client_whose_training_is_not_finite_ends_the_run_by_name(tmp_path, capsys, tally):
    federation = toy_federation((7, 12, 6, 10))
    x = federation.x.copy()
    x[federation.train.of(1)] = 1e300  # finite in the shards, and not in the loss
    replace(federation, x=x).save(tmp_path / "toy.h5", tmp_path / "toy.json")
    folder = tmp_path / "run"
    spec = {**stages.SPEC, "rounds": 4, "participation": {"rate": 1.0, "aggregation": "damped"}}
    assert stages.run_here("train", stages.options(folder, spec)) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: client 1 diverged in round 1: training loss is nan;")
    assert not (folder / "history.h5").exists() and not (folder / "state.pt").exists()
    tally("NaN in one client", "refused by the client's number")
