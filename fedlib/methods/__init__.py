"""Every method by name. To add one: write its file, then its line here.

Nothing is imported until a method is asked for, so that a run's code digest holds its own method
and no other.
"""

from importlib import import_module

METHODS = {
    "adaptive_experts": "AdaptiveExperts",
    "afl": "AFL",
    "apfl": "APFL",
    "biased_fedavg": "BiasedFedAvg",
    "centmoe": "CentMoE",
    "clustered": "ClusteredFL",
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
    "pfedme": "PFedMe",
    "pfedme_moreau": "PFedMeMoreau",
    "pfedmm": "PFedMM",
    "pfedmoe": "PFedMoE",
    "plain_mixture": "PlainMixture",
    "qffl": "QFFL",
    "server_finetuning": "ServerFinetuning",
    "uniform_mixture": "UniformMixture",
}


def load(name: str) -> type:
    """The class of method `name`, from `fedlib/methods/<name>.py`.

    Raises:
      KeyError: for an unknown name; lists the choices.
    """
    if name not in METHODS:
        raise KeyError(f"no method {name!r}; there are {', '.join(METHODS)}")
    return getattr(import_module(f"fedlib.methods.{name}"), METHODS[name])
