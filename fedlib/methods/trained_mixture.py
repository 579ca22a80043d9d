"""A mixture that the server trains on its own examples: the server's part of Fed-MoE.

Source: Jiang et al., "Heterogeneous Federated Learning with Scalable Server Mixture-of-Experts",
IJCAI 2025 (doi 10.24963/ijcai.2025/610), Algorithm 1.
Official code: FancyAI-SCNU/FedMoE_IJCAI_2025.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedlib import tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.experts import each_expert
from fedlib.engine.solvers import Memory, Solver, from_spec
from fedlib.engine.task import Batch, Params
from fedlib.methods.base import Method, Range
from fedlib.methods.gated_mixture import GatedMixture, Model, predictor
from fedlib.methods.parts.chosen import Chosen


@dataclass(frozen=True, kw_only=True)
class TrainedMixture(GatedMixture):
    """Training of gate, alpha and perhaps experts, and the choice of the best mixture.

    The state has the current mixture, `model`, and the one to predict with, `best`.

    Attributes:
      server: solver at the server, or its specification as in `Run.local`.
      noise_lr_scale, alpha_lr_scale, routed_lr_scale, main_lr_scale: factors of the server's
        learning rate, at least 0; 0 does not train the part. The paper trains no experts at the
        server.
      main_solver: solver that trains only the main experts on the server's examples, after every
        update by clients (code, CIFAR-10); None for no such training.
      warm_start: solver that trains one expert (the first main one, if any) on the server's
        examples before the first round, as the start of all experts and clients; None for a random
        start.
      keep: the mixture that predicts: the "best" on the server's validation examples, or the
        "last".
    """

    server: Solver | Mapping
    noise_lr_scale: float = 1.0
    alpha_lr_scale: float = 1.0
    routed_lr_scale: float = 0.0
    main_lr_scale: float = 0.0
    main_solver: Solver | Mapping | None = None
    warm_start: Solver | Mapping | None = None
    keep: str = "best"

    choices: ClassVar = GatedMixture.choices | {"keep": ("best", "last")}
    ranges: ClassVar = GatedMixture.ranges | {
        f"{name}_lr_scale": Range(0) for name in ("noise", "alpha", "routed", "main")
    }
    final_protocols: ClassVar = {**Method.final_protocols, "server": {"last": "last_mixture"}}

    def __post_init__(self):
        """Raises ValueError for invalid settings."""
        for name in ("server", "main_solver", "warm_start"):
            if isinstance(spec := getattr(self, name), Mapping):
                object.__setattr__(self, name, from_spec(dict(spec)))
        GatedMixture.__post_init__(self)

    @property
    def trains_experts(self) -> bool:
        """Whether the gate's training also trains experts."""
        return self.routed_lr_scale > 0 or self.main_lr_scale > 0

    def train_gate(
        self, model: Model, own: Memory, server: Cohort, stream: str
    ) -> tuple[Model, Memory]:
        """(model, memory) after training of gate, noise network, alpha and perhaps experts."""
        known = () if self.trains_experts else (self.outputs_in_turn(model, server, "train"),)
        scales = {name: getattr(self, f"{name}_lr_scale") for name in ("noise", "alpha")}
        scales |= {"routed": self.routed_lr_scale, "main": self.main_lr_scale}
        loss = self.joint_loss if self.trains_experts else self.gate_loss
        start = tree.broadcast(self.trained_part(model), 1)
        trained, own = replace(server, task=self.mixture_task).fit(
            loss, start, *known, local=self.server, memory=own, lr_scale=scales, stream=stream
        )
        return model | tree.take(trained, 0), own

    def warm_up(self, model: Model, server: Cohort) -> tuple[Params, Model]:
        """An expert that the server trained, and the mixture with copies of it as experts."""
        start = tree.broadcast(tree.map(lambda x: x[:1], model["main"] or model["routed"]), 1)
        warm, _ = server.fit(self.main_loss, start, local=self.warm_start, stream="server/warm")
        warm = tree.take(tree.take(warm, 0), 0)
        main = tree.repeat(warm, self.num_main) if self.num_main else {}
        return warm, model | {"routed": tree.repeat(warm, self.num_routed), "main": main}

    def train_main(self, model: Model, server: Cohort, stream: str) -> Model:
        """The model after training of the main experts alone, with a new solver."""
        main = tree.broadcast(model["main"], 1)
        main, _ = server.fit(self.main_loss, main, local=self.main_solver, stream=stream)
        return model | {"main": tree.take(main, 0)}

    def main_loss(self, main: Params, batch: Batch) -> Tensor:
        """Sum of the main experts' losses -> []"""
        return batch.mean(each_expert(lambda expert: self.task.losses(expert, batch), main).sum(1))

    def choose(self, best: Chosen, model: Model, outputs: Tensor, server: Cohort) -> Chosen:
        """The mixture to predict with: the best so far on the server's validation data, or last.

        Args:
          outputs: `validation_outputs`.
        """
        loss = self.validation_loss(model, outputs, server)
        mixture = predictor(model)
        if self.keep == "best":
            return best.update(mixture, loss, server.round + 1)
        number = torch.full_like(best.round, server.round + 1)
        return best._replace(params=tree.clone(mixture), loss=loss.to(best.loss), round=number)

    def personalise(self, state: Any, cohort: Cohort) -> Model:
        """The server's mixture, for all clients and the server."""
        return cohort.broadcast(state.best.params)
