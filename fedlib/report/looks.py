"""The title and look of every method, in all papers.

They are in a table of their own and not in the methods' classes, so that tables and figures need no
PyTorch, and an edit of a colour repeats no training. Colours are from the palettes of Okabe and Ito
and of Tol, which colour-blind readers can distinguish; markers and dashes distinguish methods as
well.
"""

from dataclasses import dataclass

# Markers with thin shapes, which must be larger.
STARS = ("*", (4, 1, 0), (6, 1, 0), (8, 1, 0))
SOLID, DASHED, DOTTED = "-", (0, (4, 1.6)), (0, (1, 1.3))
DASHDOT, LONG = (0, (4, 1.3, 1, 1.3)), (0, (7, 1.6))


@dataclass(frozen=True)
class Look:
    """The look of a method in figures.

    Attributes:
      title: name of the method itself, as opposed to one of its runs.
    """

    color: str
    marker: str | tuple
    line: str | tuple
    width: float = 1.5
    hollow: bool = False
    title: str = ""

    def curve(self) -> dict:
        """Keyword arguments of `Axes.plot` for a line with markers."""
        face = "white" if self.hollow else self.color
        return {
            "color": self.color,
            "linestyle": self.line,
            "linewidth": self.width,
            "marker": self.marker,
            "markerfacecolor": face,
            "markeredgecolor": self.color if self.hollow else "white",
            "markeredgewidth": 0.9 if self.hollow else 0.5,
            "markersize": 7 if self.marker in STARS else 4.8,
            "zorder": 2 if self.marker else 1.9,  # grey runs are below
        }


METHODS = {
    "local": Look("#7A7A7A", "v", DOTTED, title="Local"),
    "fedavg": Look("#000000", "o", SOLID, title="FedAvg"),
    "fedprox": Look("#999933", "s", DASHED, title="FedProx"),
    "fedavg_plus": Look("#E69F00", "P", DASHDOT, title="FedAvg+"),
    "clustered": Look("#56B4E9", "D", LONG, title="Clustered FL"),
    "ifca": Look("#2255AA", "H", SOLID, title="IFCA"),
    "adaptive_experts": Look(
        "#CC3377", (4, 1, 0), SOLID, width=2.1, title="Adaptive Expert Models"
    ),
    "local_experts": Look("#9C8F6B", (12, 0, 0), DOTTED, title="Local experts"),
    "pfedme": Look("#009E73", "^", DASHED, title="pFedMe"),
    "pfedme_moreau": Look("#117733", "8", DASHDOT, title="pFedMe (Moreau)"),
    "l2sgd": Look("#882255", "<", DASHDOT, title="L2SGD"),
    "apfl": Look("#44AA99", ">", LONG, title="APFL"),
    "qffl": Look("#332288", "h", DASHED, title="q-FFL"),
    "afl": Look("#AA4499", "d", DOTTED, title="AFL"),
    "fedem": Look("#0072B2", "X", SOLID, title="FedEM"),
    "gated_experts": Look("#CC79A7", "p", DASHDOT, title="MoE (pFedMM's)"),
    "pfedmm": Look("#D55E00", "*", SOLID, width=2.1, title="pFedMM"),
    "fedavg_adam": Look("#1A1A1A", (16, 0, 0), SOLID, title="FedAvg (server Adam)"),
    "biased_fedavg": Look("#0077BB", (4, 0, 20), LONG, title="Biased FedAvg"),
    "local_global": Look("#C9A227", (5, 0, 36), DASHDOT, title="Local/Global"),
    "fedmix": Look("#CC3311", (6, 1, 0), SOLID, width=2.1, title="FedMix"),
    "fedmix_clients": Look("#33BBEE", (3, 0, 0), SOLID, title="FedMix by clients"),
    "fedmix_vae": Look("#EE7733", (6, 0, 0), DASHED, title="FedMix with VAEs"),
    "plain_mixture": Look("#AA7744", (3, 0, 180), DASHDOT, title="Plain mixture"),
    "label_leakage": Look("#4B4B8F", (7, 0, 0), DOTTED, title="Label leakage"),
    "pfedmoe": Look("#6A3D9A", (8, 1, 0), SOLID, width=2.1, title="pFedMoE"),
    "lg_fedavg": Look("#B8860B", (4, 0, 10), DASHDOT, title="LG-FedAvg"),
    "fedrep": Look("#5F9EA0", (8, 0, 0), LONG, title="FedRep"),
    "fd": Look("#8C564B", (3, 0, 90), DOTTED, title="FD"),
    "fedproto": Look("#1B9E77", (6, 0, 30), DASHED, title="FedProto"),
    "fedgh": Look("#A6761D", (3, 0, 270), LONG, title="FedGH"),
    "fedtgp": Look("#66A61E", (5, 0, 0), DASHDOT, title="FedTGP"),
    "fml": Look("#5E8C31", (3, 1, 0), DASHED, title="FML"),
    "fedkd": Look("#B07AA1", (5, 1, 0), DASHDOT, title="FedKD"),
    "fedapen": Look("#8C510A", (7, 1, 0), LONG, title="FedAPEN"),
    "uniform_mixture": Look("#D98CB3", (8, 0, 22), DASHED, title="Uniform mixture"),
    "server_finetuning": Look("#6B8E23", (10, 0, 0), LONG, title="FedAvg, tuned on the server"),
    "centmoe": Look("#5E6B73", (9, 0, 0), DASHED, title="CentMoE"),
    "fedjets": Look("#3F7FBF", (7, 0, 26), LONG, title="FedJETs"),
    "ensemble": Look("#8F7A3E", (5, 1, 36), DOTTED, title="Ensemble of clients"),
    "fedrolex": Look("#7D5BA6", (10, 1, 0), DASHED, title="FedRolex"),
    "ditto": Look("#4477AA", (4, 0, 45), DASHED, title="Ditto"),
    "pooled": Look("#555555", (6, 1, 15), DASHDOT, title="Pooled data"),
    "oracle_clusters": Look("#228833", (5, 0, 18), LONG, title="Known clusters"),
    "moe_fedavg": Look("#2E8B8B", (4, 1, 45), DASHDOT, title="Avg-MoE"),
    "fedmoe": Look("#B8336A", (9, 1, 0), SOLID, width=2.1, title="Fed-MoE"),
}
# Colours of papers, of which colour-blind readers can tell apart as many as there are.
PAPERS = {
    "adaptive_experts": "#0077BB",
    "fedmix": "#D55E00",
    "fedmoe": "#009E73",
    "pfedmm": "#CC79A7",
    "pfedmoe": "#B08A00",
}


def paper_color(paper: str) -> str:
    """The colour of a paper, wherever papers are shown beside each other; grey for a user's."""
    return PAPERS.get(paper, "#7A7A7A")
