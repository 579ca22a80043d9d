"""The server's mixture of Fed-MoE: noisy gates, the combination of outputs, and the gate's losses.

    h~ = h + s * N(0, I),   p = softmax(h~),   y = (1 - alpha) E_0(x) + alpha sum_i g_i E_i(x)

h are the K gate logits and s their noise scales. The gate values g are all of p (soft), or values
of the top k of p (sparse). All functions here are pure functions of one batch.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Equations 1, 8 and 10.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025; "(code)" marks what the paper does not have.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from fedlib.engine.task import log_probs
from fedlib.models.layers.random import gaussian

GATE_VALUES = ("renorm", "straight_through")
COMBINATIONS = ("probabilities", "logits")
ENTROPIES = ("per_example", "per_expert")
LOADS = ("canonical", "code_femnist", "code_cifar10")
SMALLEST_SCALE = 0.01  # of the gate's noise (code)
MAIN_SHARE = 0.5  # weight of each of several main experts, in place of alpha (code)
NOISE = 1001  # salt for the random numbers of a gate; those of dropout layers are small numbers


# -- gates ---------------------------------------------------------------------------------


def noise_scale(outputs: Tensor) -> Tensor:
    """Standard deviation of the gate's noise from the noise network's outputs -> [B, K]"""
    return softplus(outputs) + SMALLEST_SCALE


def noisy(logits: Tensor, scale: Tensor, key: Tensor) -> Tensor:
    """Gate logits with noise of this scale, drawn from the batch's key -> [B, K]"""
    draw = gaussian(key + (NOISE << 32), logits.shape, logits.device)
    return logits + scale * draw.to(logits.dtype)


def top_k_gates(logits: Tensor, k: int, value: str) -> Tensor:
    """Values of the k most probable experts, 0 for the others -> [B, K]

    Args:
      logits: [B, K], with or without noise.
      k: number of kept experts, in [1, K].
      value: one of `GATE_VALUES`. "renorm" (code), a softmax of the kept probabilities: for k = 1
        it is always 1, so the gate gets no gradient; or "straight_through" (ours), with the same
        value and the relative gradient of the probabilities.
    """
    log_p, chosen = logits.log_softmax(-1).topk(k)
    kept = log_p.exp().softmax(-1)
    if value == "straight_through":
        # p / stopgrad(p) is 1, with the gradient of log p.
        kept = kept.detach() * (log_p - log_p.detach()).exp()
    return torch.zeros_like(logits).scatter(-1, chosen, kept)


# -- outputs -------------------------------------------------------------------------------


def combine(gates: Tensor, routed: Tensor, main: Tensor, alpha: Tensor) -> Tensor:
    """The weighted sum of the experts' outputs -> [B, L]

    With one main expert, alpha weights the routed experts and 1 - alpha the main one. Without a
    main expert, alpha is not used; several are added with `MAIN_SHARE` each (code).

    Args:
      gates: [B, K].
      routed, main: [B, K, L] and [B, R, L], probabilities or logits.
      alpha: [].
    """
    mixed = torch.einsum("bk,bkl->bl", gates, routed)
    match main.shape[1]:
        case 0:
            return mixed
        case 1:
            return alpha * mixed + (1 - alpha) * main[:, 0]
        case _:
            return mixed + MAIN_SHARE * main.sum(1)


def combined_log_probs(mixed: Tensor, combination: str) -> Tensor:
    """Log-probabilities from `combine`d probabilities or logits -> [B, L]

    Combined probabilities are divided by their sum, which differs from 1 if the gate values do not
    sum to 1 or there are several main experts. Learned alpha may leave [0, 1], so they may be
    negative; they are clamped to the smallest positive number.
    """
    if combination == "logits":
        return log_probs(mixed)
    positive = mixed.clamp(min=torch.finfo(mixed.dtype).tiny)
    return positive.log() - positive.sum(-1, keepdim=True).log()  # a quotient could become 0


# -- losses --------------------------------------------------------------------------------


def cross_entropy(log_probs: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy with label smoothing in [0, 1] -> [B]"""
    right = log_probs.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)
    return -(1 - smoothing) * right - smoothing * log_probs.mean(-1)


def entropy_per_example(probabilities: Tensor) -> Tensor:
    """Mean entropy of the examples' gates (Equation 8) -> []"""
    return _entropy(probabilities).mean()


def entropy_per_expert(gates: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Mean entropy of the experts' class distributions (code) -> []

    An expert's distribution is the softmax of its gate mass by class; without mass it is uniform.

    Args:
      gates: [B, K].
      y: [B] labels.
      num_classes: L.
    """
    return _entropy(class_mass(gates, y, num_classes).softmax(-1)).mean()


def class_mass(gates: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Sum of the gate values of each expert [B, K] over the examples of each class -> [K, L]"""
    return gates.T @ one_hot(y.long(), num_classes).to(gates.dtype)


def load_balance(gates: Tensor, load: Tensor) -> Tensor:
    """Load-balancing loss, from the gates [B, K] and the experts' load [K] (code) -> []"""
    return cv2(gates.sum(0)) + cv2(load)


def cv2(values: Tensor) -> Tensor:
    """Squared coefficient of variation; 0 for a single value -> []"""
    if len(values) == 1:
        return values.new_zeros(())
    return values.var(unbiased=True) / (values.mean().square() + 1e-10)


def hard_load(gates: Tensor) -> Tensor:
    """Load of the experts without noise: number of examples that use each -> [K]"""
    return (gates > 0).to(gates.dtype).sum(0)


def smooth_load(clean: Tensor, noisy: Tensor, scale: Tensor, k: int, kind: str) -> Tensor:
    """Load of the experts: summed probabilities to be in the top k under new noise -> [K]

    An expert is in the top k if its logit exceeds the k-th largest of the others. This threshold is
    the (k+1)-th largest of all logits for an expert in the top k, and the k-th for the others. The
    official code differs from this: it compares logits with probabilities as thresholds
    ("code_femnist", "code_cifar10", which are the same).

    Args:
      clean, noisy: [B, K] gate logits without and with noise.
      scale: [B, K] of the noise.
      k: below K.
      kind: "canonical" (the definition above), or another one of `LOADS`.
    """
    compared = noisy if kind == "canonical" else noisy.softmax(-1)
    largest = compared.topk(k + 1, dim=-1).values
    kth, next_largest = largest[..., k - 1 : k], largest[..., k:]
    z = (clean - torch.where(noisy > next_largest, next_largest, kth)) / scale
    return (0.5 * (1 + torch.erf(z / 2**0.5))).sum(0)  # the CDF of the normal distribution


def _entropy(probabilities: Tensor) -> Tensor:
    """Entropy in nats of distributions along the last dimension; 0 log 0 is 0.

    `torch.special.entr` has an infinite slope at 0: a gate with a zero weight would get NaN.
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp(min=tiny).log()).sum(-1)
