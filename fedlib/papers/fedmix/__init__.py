"""FedMix: a variational mixture of experts, its baselines, diagnostics and special experiments.

Paper: Reisser, Louizos, Gavves, Welling, "Federated Mixture of Experts", ICLR 2021 submission with
appendices A to I (later arXiv:2107.06724). There is no official code.
Every value has its source in `settings` and `scales`.

Scales:
  demo     digits in place of all data sets; settings of ours
  reduced  CIFAR-10 and MNIST with fewer rounds, and smaller experts for CIFAR-10
  full     the paper's data sets, models and rounds
"""

from fedlib.papers import _frame
from fedlib.papers.fedmix import exhibits, scales
from fedlib.papers.fedmix.criteria import ACCEPTANCE

declare = _frame.paper(
    "fedmix",
    "FedMix",
    "M. Reisser, C. Louizos, E. Gavves, M. Welling: Federated Mixture of Experts, ICLR 2021 "
    "submission (arXiv:2107.06724)",
    scales,
    exhibits,
    ACCEPTANCE,
)
