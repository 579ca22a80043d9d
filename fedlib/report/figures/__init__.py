"""Figures, by kind: `load(kind)` is its `draw(exhibit, metrics, clients, published, **params)`.

Its arguments are those of all kinds (`fedlib.report.exhibits`, `fedlib.report.metrics`, of
which come both metrics and clients, `fedlib.report.printed`), and by their names the `params`
of the declared figure, of which each kind has its own. Nothing is imported until it is asked for,
so that a figure's code digest covers its own kind only.
"""

from collections.abc import Callable

from fedlib.report import registry

KINDS = {
    "accuracy_over_bytes": "fedlib.report.figures.accuracy_over_bytes:draw",
    "accuracy_over_rounds": "fedlib.report.figures.accuracy_over_rounds:draw",
    "alpha_over_rounds": "fedlib.report.figures.alpha_over_rounds:draw",
    "client_accuracy_cdf": "fedlib.report.figures.client_accuracy_cdf:draw",
    "client_differences": "fedlib.report.figures.client_differences:draw",
    "client_matrices": "fedlib.report.figures.client_matrices:draw",
    "cluster_usage": "fedlib.report.figures.cluster_usage:draw",
    "cost_to_target": "fedlib.report.figures.cost_to_target:draw",
    "expert_weights": "fedlib.report.figures.expert_weights:draw",
    "exploration": "fedlib.report.figures.exploration:draw",
    "gain_bars": "fedlib.report.figures.gain_bars:draw",
    "gate_weights": "fedlib.report.figures.gate_weights:draw",
    "gradient_divergence": "fedlib.report.figures.gradient_divergence:draw",
    "label_leakage": "fedlib.report.figures.label_leakage:draw",
    "mixture_weights": "fedlib.report.figures.mixture_weights:draw",
    "protocol_sweep": "fedlib.report.figures.protocol_sweep:draw",
    "representations": "fedlib.report.figures.representations:draw",
    "sweep": "fedlib.report.figures.sweep:draw",
    "tables_over_time": "fedlib.report.figures.tables_over_time:draw",
    "weights_over_rounds": "fedlib.report.figures.weights_over_rounds:draw",
}


def load(kind: str) -> Callable:
    """The function that draws that kind of figure; ConfigError with the choices if none does."""
    return registry.load(KINDS, kind, "figure")


def check_params(kind: str, params: dict) -> None:
    """Nothing, if `params` are what that kind takes; ConfigError saying which they are if not."""
    registry.check_params(load(kind), params, f"figure kind {kind}")
