"""Every method by name. To add one: write its file, its line here, and one in `report/looks.py`.

Nothing is imported until a method is asked for, so that a run's code digest holds its own method
and no other. A method outside of this package is named by its file, as in "mine/fedper.py".
"""

import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from fedlib.errors import ConfigError
from fedlib.run_spec import class_of_file, is_file

METHODS = {
    "adaptive_experts": "AdaptiveExperts",
    "afl": "AFL",
    "apfl": "APFL",
    "biased_fedavg": "BiasedFedAvg",
    "centmoe": "CentMoE",
    "clustered": "ClusteredFL",
    "ditto": "Ditto",
    "ensemble": "Ensemble",
    "fd": "FD",
    "fedapen": "FedAPEN",
    "fedavg": "FedAvg",
    "fedavg_adam": "FedAvgAdam",
    "fedavg_plus": "FedAvgPlus",
    "fedem": "FedEM",
    "fedgh": "FedGH",
    "fedjets": "FedJETs",
    "fedkd": "FedKD",
    "fedmix": "FedMix",
    "fedmix_clients": "FedMixClients",
    "fedmix_vae": "FedMixVAE",
    "fedmoe": "FedMoE",
    "fedprox": "FedProx",
    "fedrep": "FedRep",
    "fedrolex": "FedRolex",
    "fedproto": "FedProto",
    "fedtgp": "FedTGP",
    "fml": "FML",
    "gated_experts": "GatedExperts",
    "ifca": "IFCA",
    "l2sgd": "L2SGD",
    "label_leakage": "LabelLeakage",
    "lg_fedavg": "LGFedAvg",
    "local": "Local",
    "local_experts": "LocalExperts",
    "local_global": "LocalGlobal",
    "moe_fedavg": "MoEFedAvg",
    "oracle_clusters": "OracleClusters",
    "pfedme": "PFedMe",
    "pfedme_moreau": "PFedMeMoreau",
    "pfedmm": "PFedMM",
    "pfedmoe": "PFedMoE",
    "plain_mixture": "PlainMixture",
    "pooled": "Pooled",
    "qffl": "QFFL",
    "server_finetuning": "ServerFinetuning",
    "uniform_mixture": "UniformMixture",
}


ROOT = Path(__file__).resolve().parents[2]  # what the names of files are relative to


def load(name: str) -> type:
    """The class of method `name`, from `fedlib/methods/<name>.py` or from the file it names.

    Raises:
      KeyError: for an unknown name; lists the choices.
      ConfigError: for a file without a method, or one that cannot be imported.
    """
    if is_file(name):
        return _from_file(name)
    if name not in METHODS:
        raise KeyError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return getattr(import_module(f"fedlib.methods.{name}"), METHODS[name])


def _from_file(name: str) -> type:
    """The class that a file is about; everything else that it needs is fedlib or installed."""
    from fedlib.methods.base import Method

    module_name = f"fedlib_own_{Path(name).stem}"
    spec = spec_from_file_location(module_name, ROOT / name)
    module = module_from_spec(spec)
    sys.modules[module_name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file may raise
        [*_, last] = traceback.extract_tb(error.__traceback__)
        where = f", line {last.lineno}" if last.filename == str(ROOT / name) else ""
        raise ConfigError(f"{name}{where}: {type(error).__name__}: {error}") from error
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    found = getattr(module, class_of_file(name, classes))
    if not issubclass(found, Method):
        raise ConfigError(
            f"{name}: {found.__name__} is not derived from fedlib.methods.base.Method"
        )
    return found
