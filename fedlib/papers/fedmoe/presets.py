"""Settings of Fed-MoE by data set: the paper's, where it prints them, and the released code's.

The paper prints no rounds, epochs, batch sizes or rates: both presets have those of the code, which
are in section 3.1 of README.md.
"paper" is Algorithm 1 with Equations 1 to 13; "code" follows the released code, without its
crashes, on images alone.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610).
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025, one folder for each data set.
Deviation: clients' solvers start anew in each round. The cosine schedule of CIFAR-10 falls with
every epoch; in the code it falls with every training of the gate. On CIFAR-10 the server's weight
decay and eps also act on alpha, and on a main expert that it trains; in the code only on the gate
and the routed experts. Sentiment140 has a main expert, as in the paper and the code's description;
the code's default is none.
"""

from dataclasses import dataclass

LAMBDA = 0.1  # code, its option --a; the paper only says that it is in (0, 1)
BETA = 1e-3  # paper, everywhere
SPARSE = {  # code: common to all its folders
    "training_gate": "top_k",
    "query": "kept",
    "gate_value": "renorm",
    "combine": "logits",
    "entropy": "per_expert",
    "l2_weight": 1e-7,
    "init_experts": "independent",
    "probe": "probe",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The code's settings for a data set, which preset "paper" also has, except for `code`.

    A default is what most of its data sets have.

    Attributes:
      rounds: of communication.
      cohort: number of clients in a round, and of experts.
      selection: of the cohort, see `fedlib.run.simulate.Course`.
      local: solver of the clients, which starts anew in each round.
      server: solver of the gate, with the epochs of one inner step.
      inner_steps: T.
      alpha, alpha_lr: initial value of alpha, and its learning rate.
      code: hyper-parameters of preset "code" alone; None for a data set without it.
    """

    rounds: int = 100
    cohort: int
    selection: str
    local: dict
    server: dict
    inner_steps: int = 1
    alpha: float = 0.5
    alpha_lr: float
    code: dict | None = None


SETTINGS = {
    "femnist": Setting(
        cohort=5,
        selection="residue",
        local={"solver": "adam", "lr": 3e-4, "batch_size": 64, "epochs": 5},
        server={"solver": "adam", "lr": 3e-5, "batch_size": 64, "epochs": 2},
        alpha_lr=3e-5,
        code={"gate_training": "before", "lam": 1.0, "client_lam": 0.0}
        | {"entropy_weight": 1e-1, "balance_weight": 1.0, "load": "code_femnist"},
    ),
    "cifar10": Setting(
        cohort=5,
        selection="residue",
        local={"solver": "adam", "lr": 1e-4, "batch_size": 32, "epochs": 2}
        | {"eps": 1e-6, "weight_decay": 5e-4},
        server={"solver": "adam", "lr": 1e-4, "batch_size": 32, "epochs": 5}
        | {"eps": 1e-6, "weight_decay": 5e-4},
        inner_steps=5,
        alpha=0.9,
        alpha_lr=5e-7,
        code={"main_lam": 1.0, "noise_lr_scale": 0.0, "routed_lr_scale": 1.0, "main_lr_scale": 0.5}
        | {"main_solver": {"solver": "adam", "lr": 1e-4, "batch_size": 256, "epochs": 20}}
        | {"entropy_weight": 1e-3, "balance_weight": 0.1, "load": "code_cifar10"}
        | {"label_smoothing": 0.1, "confidence": "logit", "keep": "last"},
    ),
    "sent140": Setting(
        cohort=3,
        selection="uniform",
        local={"solver": "sgd", "lr": 5e-4, "momentum": 0.9, "batch_size": 4, "epochs": 1},
        server={"solver": "sgd", "lr": 5e-3, "momentum": 0.9, "batch_size": 16, "epochs": 2},
        alpha_lr=1e-5,
    ),
    "yelp": Setting(
        rounds=5,
        cohort=3,
        selection="uniform",
        # The code has batches of one example; its rates are kept.
        local={"solver": "sgd", "lr": 3e-4, "batch_size": 16, "epochs": 5},
        server={"solver": "sgd", "lr": 3e-6, "batch_size": 16, "epochs": 2},
        alpha_lr=1e-5,
    ),
}


def fedmoe(dataset: str, preset: str, rounds: int) -> dict:
    """Hyper-parameters of the method on a data set.

    Args:
      dataset: one of `SETTINGS`.
      preset: "paper" or "code".
      rounds: of the run, the length of a cosine schedule.
    """
    setting = SETTINGS[dataset]
    server = dict(setting.server)
    if preset == "code" and setting.code.get("gate_training") == "before":
        server["epochs"] = 1
    if dataset == "cifar10":
        period = rounds * setting.inner_steps * server["epochs"]
        server["schedule"] = {"kind": "cosine", "period": period}
    params = {
        "server": server,
        "inner_steps": setting.inner_steps,
        "alpha": setting.alpha,
        "alpha_lr_scale": setting.alpha_lr / server["lr"],
        "lam": LAMBDA,
        "entropy_weight": BETA,
    }
    return params | SPARSE | setting.code if preset == "code" else params
