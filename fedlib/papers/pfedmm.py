"""pFedMM: all its methods, data sets and experiments, and the data sets of FedEM.

Paper: "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in
Edge Computing Networks".
Source of every value: the scripts of the official repository Archipes/pFedMM ("scripts" below),
which its README does not always match; of FedEM's, omarfoq/FedEM, where the former is silent.

Scales:
  demo     two small federations that need no download, with settings of ours
  reduced  EMNIST, CIFAR-10 and FEMNIST cut as in the papers, with fewer rounds and seeds
  full     the papers' settings, with three seeds instead of one
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fedlib.papers import _frame
from fedlib.papers import _pfedmm_scales as scales
from fedlib.papers._pfedmm_criteria import criteria
from fedlib.papers._pfedmm_settings import (
    ABLATIONS,
    METHODS,
    MIXTURES,
    NUM_EXPERTS,
    SAMPLED,
    SAMPLING_RATE,
    SERVERLESS,
    UNSEEN_FRACTION,
    Setting,
    has_unseen,
)
from fedlib.spec import Figure, Paper, Run, Table

TITLE = "pFedMM"
CITATION = (
    "Mixture of Experts for Personalized Federated Learning under Mixture Data Distributions in "
    "Edge Computing Networks (official code: Archipes/pFedMM)"
)

TEST_SELECTION = (
    "The published numbers of the methods that the authors ran are the best round on the test "
    "data: compare them with the column of the best round."
)
CLAIM = {"title": "Abstract", "exhibit": "abstract-claim", "dataset": "unspecified"}
EXPERTS = {"parameter": "num_experts", "symbol": "M", "methods": list(MIXTURES)}
ALPHA = {"parameter": "partition.alpha", "of": "federation", "symbol": "α"}


def declare(scale: str) -> Paper:
    """The paper at one scale.

    Raises:
      ConfigError: for an unknown scale.
    """
    about = {"name": "pfedmm", "title": TITLE, "citation": CITATION}
    return _frame.declare(scale, scales, _exhibits, variants=Setting.variants, **about)


@dataclass(frozen=True)
class Declared:
    """What there is to show at a scale."""

    settings: tuple[Setting, ...]
    runs: tuple[Run, ...]

    def on(self, *exhibits: str, labels: Iterable[str] = METHODS) -> dict:
        """Federations and methods of `Setting.exhibit`, as `Table` takes them."""
        return self._named(labels, [s.data.name for s in self.settings if s.exhibit in exhibits])

    def everywhere(self, labels: Iterable[str] = METHODS) -> dict:
        """The same of all federations, but for those that only vary one."""
        return self.on("main", "fedem-readme", labels=labels)

    def unseen(self) -> dict:
        """The same of federations with clients who take no part in training."""
        by_themselves = [s for s in self.settings if has_unseen(s.data) and s.exhibit != "unseen"]
        where = [s for s in self.settings if s.exhibit == "unseen"] + by_themselves
        return self._named(METHODS, [s.data.name for s in where])

    def variants(self, labels: dict[str, str]) -> dict:
        """Runs whose label is a variant of another, with those that they vary.

        Args:
          labels: {label of a variant: label of the run it varies}, in row order.
        """
        where = dict.fromkeys(run.federation for run in self.runs if run.label in labels)
        shown = dict.fromkeys(x for label in labels for x in (labels[label], label))
        return self._named(shown, where)

    def experts(self) -> dict:
        """Runs that differ in their number of experts."""
        labels = {
            run.label: base
            for base in MIXTURES
            for run in self.runs
            if run.label.startswith(f"{base}-m") and run.params["num_experts"] != NUM_EXPERTS
        }
        return self.variants(labels)

    def heterogeneity(self) -> tuple[dict, list[str]]:
        """Runs on partitions that differ in their concentration, and their methods."""
        varied = [s for s in self.settings if s.exhibit == "heterogeneity"]
        families = {s.data.family for s in varied}
        where = [
            s.data.name
            for s in self.settings
            if s in varied or (s.exhibit == "main" and s.data.title in families)
        ]
        labels = [label for label in METHODS if any(label in s.labels for s in varied)]
        return self._named(labels, where), [METHODS[label][1] for label in labels]

    def _named(self, labels, federations) -> dict:
        """Those of the labels and federations that have runs."""
        cells = [(r.label, r.federation) for r in self.runs if r.federation in federations]
        present = {label for label, _ in cells} & set(labels)
        return {
            "labels": tuple(label for label in labels if label in present),
            "federations": tuple(
                name for name in federations if any((x, name) in cells for x in present)
            ),
        }


def _exhibits(
    settings: tuple[Setting, ...], runs: tuple[Run, ...]
) -> tuple[dict[str, Table], dict[str, Figure]]:
    what = Declared(settings, runs)
    return _tables(what) | {"criteria": criteria(settings, runs)}, _figures(what)


def _tables(what: Declared) -> dict[str, Table]:
    heterogeneity, compared = what.heterogeneity()
    sampled = {f"{base}-{way}": base for base in SAMPLED for way in ("damped", "renormalised")}
    return {
        "main": Table(
            kind="accuracy",
            title="Personalised accuracy",
            caption="Accuracy of the seen clients' own predictors on their own test shards: pooled "
            "over examples (All), and of the client at the lowest decile (Bottom-10%). "
            + TEST_SELECTION,
            published="main",
            **what.on("main"),
        ),
        "lead": Table(
            kind="lead",
            title="How far pFedMM is ahead",
            caption="Personalised accuracy of pFedMM minus that of each other method. The abstract "
            "claims about 8.8 points over the baselines, which is the lead over FedEM on "
            "CIFAR-100 in the paper's own table.",
            published="main",
            params={"of": "pfedmm", "claim": CLAIM | {"metric": "gain", "over": "best"}},
            **what.on("main"),
        ),
        "fresh_adaptation": Table(
            kind="protocols",
            title="Fine-tuning of FedAvg+ with a new solver",
            caption="Accuracy of the seen clients when the solver that fine-tunes lives from one "
            "evaluation to the next, as in the official code, and when every fine-tuning has a new "
            "one at the learning rate that training has reached. The paper prints no such table.",
            params={
                "group": "seen",
                "protocols": {"default": "one solver", "fresh": "new solvers"},
            },
            **what.everywhere(["fedavg-plus"]),
        ),
        "fedem_settings": Table(
            kind="accuracy",
            title="Settings of FedEM",
            caption="As the table of personalised accuracy, on its data sets, with the rounds, "
            "learning rates and evaluations of FedEM's scripts. Published: the averages in FedEM's "
            "README.",
            published="fedem-readme",
            **what.on("fedem-settings"),
        ),
        "fedem_data": Table(
            kind="accuracy",
            title="Data sets of FedEM",
            caption="As the table of personalised accuracy, on data sets that FedEM reports on and "
            "pFedMM does not. Published: the averages in FedEM's README.",
            published="fedem-readme",
            **what.on("fedem-readme"),
        ),
        "unseen": Table(
            kind="unseen",
            title="Clients that took no part in training",
            caption=f"The same runs with {UNSEEN_FRACTION:.0%} of the clients set apart, on whom "
            "the other tables train. Accuracy of unseen clients after adapting as their method "
            "allows: mixtures fit their weights in one E-step on the client's training examples "
            "(default) or carry them from evaluation to evaluation (carry); FedAvg+ fine-tunes. "
            "The paper claims up to 5.8 points over the baselines; its numbers are not public.",
            **what.unseen(),
        ),
        "unseen_lead": Table(
            kind="lead",
            title="How far pFedMM is ahead on unseen clients",
            caption="Accuracy of pFedMM's unseen clients, with weights of one E-step, minus that "
            "of the others'. The abstract claims up to 5.8 points; it names neither data set nor "
            "baseline.",
            published="abstract-claim",
            params={
                "of": "pfedmm",
                "group": "unseen",
                "at": "last",
                "claim": CLAIM | {"metric": "unseen_gain_max", "over": "any"},
            },
            **what.unseen(),
        ),
        "decentralised": Table(
            kind="accuracy",
            title="Without a server",
            caption="Accuracy when clients average with their neighbours on a connected "
            "Erdos-Renyi graph (edge probability 0.5, fastest-mixing weights) instead of through a "
            "server. The paper's code has this setting; it prints no numbers.",
            **what.variants({f"{base}-gossip": base for base in SERVERLESS}),
        ),
        "client_sampling": Table(
            kind="accuracy",
            title="Client sampling",
            caption=f"Accuracy when {SAMPLING_RATE:.0%} of the clients take part in a round. "
            "Damped: absent clients count with the model they hold, as in the official code. "
            "Renormalised: they do not count. The paper prints no numbers.",
            **what.variants(sampled),
        ),
        "refreshed_weights": Table(
            kind="protocols",
            title="Mixture weights of absent clients",
            caption="A client that was absent has mixture weights that fit the experts of an "
            "earlier round. Accuracy of the seen clients with the weights as they are, and after "
            "one E-step with the experts of the last round.",
            params={
                "group": "seen",
                "protocols": {"default": "as they are", "one_step": "refreshed"},
            },
            **what.variants({label: base for label, base in sampled.items() if base in MIXTURES}),
        ),
        "effect_of_experts": Table(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients for M experts. The paper's scripts "
            "run this experiment; its numbers are not public.",
            params=EXPERTS,
            **what.experts(),
        ),
        "heterogeneity": Table(
            kind="sweep",
            title="Effect of heterogeneity",
            caption="Personalised accuracy of the seen clients against the concentration α of the "
            "Dirichlet partition: the smaller, the more clients differ; 1e6 is practically IID. "
            "The paper's scripts run 0.4 and 1e6; its numbers are not public.",
            params={**ALPHA, "methods": compared},
            **heterogeneity,
        ),
        "ablations": Table(
            kind="accuracy",
            title="What pFedMM is made of",
            caption="pFedMM with one of its parts changed: a ReLU on the heads' outputs, which the "
            "official code has on EMNIST alone; the body's learning rate, officially M times the "
            "heads'; the prior of the E-step, officially the weights of the last round; batch "
            "normalisation, officially shared. The paper has no such table.",
            **what.variants({f"pfedmm-{name}": "pfedmm" for name in ABLATIONS}),
        ),
        "cost": Table(
            kind="cost",
            title="What a method costs",
            caption="Training examples, arithmetic and traffic of every method.",
            **what.everywhere(),
        ),
    }


def _figures(what: Declared) -> dict[str, Figure]:
    heterogeneity, compared = what.heterogeneity()
    over_rounds = {
        "kind": "accuracy_over_rounds",
        "caption": "Personalised accuracy of the seen clients after each communication round.",
    }
    return {
        "accuracy_over_rounds": Figure(
            **over_rounds,
            title="Accuracy over rounds",
            published="curve-end",
            params={"peaks": "curve-peak", "waypoints": "curve-waypoints"},
            **what.on("main"),
        ),
        "fedem_data_over_rounds": Figure(
            **over_rounds,
            title="Accuracy over rounds, data sets of FedEM",
            **what.on("fedem-readme"),
        ),
        "client_accuracy": Figure(
            kind="client_accuracy_cdf",
            title="Accuracy client by client",
            caption="Share of clients whose accuracy is at most the value on the axis, last round.",
            **what.everywhere(),
        ),
        "unseen_client_accuracy": Figure(
            kind="client_accuracy_cdf",
            title="Accuracy of unseen clients",
            caption="Share of clients whose accuracy is at most the value on the axis, last round: "
            "those that train, and those that took no part in training.",
            params={"unseen": True},
            **what.unseen(),
        ),
        "mixture_weights": Figure(
            kind="mixture_weights",
            title="Mixture weights",
            caption="How much of each expert a client's mixture uses, last round.",
            **what.everywhere(MIXTURES),
        ),
        "accuracy_over_bytes": Figure(
            kind="accuracy_over_bytes",
            title="Accuracy over communication",
            caption="Personalised accuracy against what all clients together have sent and "
            "received, four bytes per number.",
            **what.everywhere(),
        ),
        "effect_of_experts": Figure(
            kind="sweep",
            title="Effect of the number of experts",
            caption="Personalised accuracy of the seen clients against the number of experts M.",
            params=EXPERTS,
            **what.experts(),
        ),
        "heterogeneity": Figure(
            kind="sweep",
            title="Effect of heterogeneity",
            caption="Personalised accuracy of the seen clients against the concentration α of the "
            "Dirichlet partition: the smaller, the more clients differ.",
            params={**ALPHA, "methods": compared},
            **heterogeneity,
        ),
    }
