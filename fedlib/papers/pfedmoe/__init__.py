"""pFedMoE: a mixture of a shared and a private extractor, its baselines, ablations and pictures.

Paper: Yi, Yu, Ren, Zhang, Wang, Liu, Li, "pFedMoE: Data-Level Personalization with Mixture of
Experts for Model-Heterogeneous Personalized Federated Learning", 2024 (arXiv:2402.01350). There is
no official code, and its tables could not be read: published numbers are a sibling paper's, or
follow from both. Every value has its source in `settings` and `scales`. In pFedMM's code base,
"pFedMoE" is another method, `gated_experts`.

Scales:
  demo     digits in place of all data sets; settings of ours
  reduced  a tenth of CIFAR-10 and MNIST, ten clients, 40 and 5 rounds, most runs once
  full     the paper's data sets, models, federations and rounds
"""

from fedlib.papers import _frame
from fedlib.papers.pfedmoe import exhibits, scales
from fedlib.papers.pfedmoe.criteria import ACCEPTANCE

declare = _frame.paper(
    "pfedmoe",
    "pFedMoE",
    "L. Yi, H. Yu, C. Ren, H. Zhang, G. Wang, X. Liu, X. Li: pFedMoE: Data-Level Personalization "
    "with Mixture of Experts for Model-Heterogeneous Personalized Federated Learning, 2024 "
    "(arXiv:2402.01350)",
    scales,
    exhibits,
    ACCEPTANCE,
)
