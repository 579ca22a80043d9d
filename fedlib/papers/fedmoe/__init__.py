"""Fed-MoE: a mixture of experts on the server, its baselines, ablations and pictures.

Paper: Jiang, Chen, Liu, Jiang, Fan, "Heterogeneous Federated Learning with Scalable Server
Mixture-of-Experts", IJCAI 2025 (doi 10.24963/ijcai.2025/610).
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025, which differs much from the paper.
Every value has its source in `settings`, `presets` and `scales`.

Scales:
  demo     digits and synthetic texts in place of all data sets; settings of ours
  reduced  CIFAR-10 and LEAF's FEMNIST, narrow networks, few examples and rounds
  full     the paper's data sets, networks and federations, and the code's rounds
"""

from fedlib.papers import _frame
from fedlib.papers.fedmoe import exhibits, scales
from fedlib.papers.fedmoe.criteria import ACCEPTANCE

declare = _frame.paper(
    "fedmoe",
    "Fed-MoE",
    "J. Jiang, Y. Chen, X. Liu, H. Jiang, C. Fan: Heterogeneous Federated Learning with Scalable "
    "Server Mixture-of-Experts, IJCAI 2025 (doi 10.24963/ijcai.2025/610; official code: "
    "FancyAI-SCNU/FedMoE_IJCAI_2025)",
    scales,
    exhibits,
    ACCEPTANCE,
)
