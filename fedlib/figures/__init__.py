"""Figures, by kind: `load(kind)` is its `draw(exhibit, metrics, clients, published, **params)`.

Its arguments are those of all kinds (`fedlib.exhibits.selection`, `fedlib.exhibits.metrics`, of
which come both metrics and clients, `fedlib.exhibits.published`), and by their names the `params`
of the declared figure, of which each kind has its own. Nothing is imported until it is asked for,
so that a figure's code digest covers its own kind only.
"""

from collections.abc import Callable

from fedlib.exhibits import registry

KINDS = {
    "accuracy_over_bytes": "fedlib.figures.accuracy_over_bytes:draw",
    "accuracy_over_rounds": "fedlib.figures.accuracy_over_rounds:draw",
    "alpha_over_rounds": "fedlib.figures.alpha_over_rounds:draw",
    "client_accuracy_cdf": "fedlib.figures.client_accuracy_cdf:draw",
    "client_differences": "fedlib.figures.client_differences:draw",
    "client_matrices": "fedlib.figures.client_matrices:draw",
    "cluster_usage": "fedlib.figures.cluster_usage:draw",
    "cost_to_target": "fedlib.figures.cost_to_target:draw",
    "expert_weights": "fedlib.figures.expert_weights:draw",
    "exploration": "fedlib.figures.exploration:draw",
    "gain_bars": "fedlib.figures.gain_bars:draw",
    "gate_weights": "fedlib.figures.gate_weights:draw",
    "gradient_divergence": "fedlib.figures.gradient_divergence:draw",
    "label_leakage": "fedlib.figures.label_leakage:draw",
    "mixture_weights": "fedlib.figures.mixture_weights:draw",
    "protocol_sweep": "fedlib.figures.protocol_sweep:draw",
    "representations": "fedlib.figures.representations:draw",
    "sweep": "fedlib.figures.sweep:draw",
    "tables_over_time": "fedlib.figures.tables_over_time:draw",
    "weights_over_rounds": "fedlib.figures.weights_over_rounds:draw",
}


def load(kind: str) -> Callable:
    """The function that draws that kind of figure; ConfigError with the choices if none does."""
    return registry.load(KINDS, kind, "figure")


def check_params(kind: str, params: dict) -> None:
    """Nothing, if `params` are what that kind takes; ConfigError saying which they are if not."""
    registry.check_params(load(kind), params, f"figure kind {kind}")
