"""pFedMM: all its methods, data sets and experiments, and the data sets of FedEM.

Paper: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks".
Source of every value: the scripts of the official repository Archipes/pFedMM ("scripts" below),
which its README does not always match; values missing there are from FedEM's, omarfoq/FedEM.

Scales:
  demo     two small federations that need no download, with settings of ours
  reduced  EMNIST, CIFAR-10 and FEMNIST cut as in the papers, with fewer rounds and seeds
  full     the papers' settings, with three seeds instead of one
"""

from fedlib.papers import _frame
from fedlib.papers.pfedmm import exhibits, scales
from fedlib.papers.pfedmm.criteria import ACCEPTANCE

declare = _frame.paper(
    "pfedmm",
    "pFedMM",
    "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in "
    "Edge Computing Networks, 2026 (its official code, Archipes/pFedMM, names neither authors nor "
    "venue)",
    scales,
    exhibits,
    ACCEPTANCE,
)
