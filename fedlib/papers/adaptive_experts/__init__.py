"""Adaptive Expert Models: clusters with exploration, local experts and gates.

Paper: Isaksson, Listo Zec, Coster, Gillblad, Girdzijauskas, "Adaptive Expert Models for
Personalization in Federated Learning", FL-IJCAI 2022 (arXiv:2206.07832).
Every value has its source in `settings` and `scales`.

A run is one federated training; its evaluation has a protocol per column of the paper's Table 2.

Scales:
  demo     digits by majority fraction, and rotated; settings of ours
  reduced  CIFAR-10 by majority fraction with fewer clients, images, rounds and trials
  full     CIFAR-10 by majority fraction in both profiles, rotated CIFAR-10 and FEMNIST
"""

from fedlib.papers import _frame
from fedlib.papers.adaptive_experts import exhibits, scales
from fedlib.papers.adaptive_experts.criteria import ACCEPTANCE

declare = _frame.paper(
    "adaptive_experts",
    "Adaptive Expert Models",
    "M. Isaksson, E. Listo Zec, R. Coster, D. Gillblad, S. Girdzijauskas: Adaptive Expert Models "
    "for Personalization in Federated Learning, FL-IJCAI 2022 (arXiv:2206.07832; official code: "
    "EricssonResearch/fl-moe)",
    scales,
    exhibits,
    ACCEPTANCE,
)
