"""FedKD: a private teacher and a shared student distil each other; students travel compressed.

    client  d  = CE(teacher) + CE(student)
            h  = MSE(r_teacher, W r_student)
            L_teacher = CE(teacher) + (KL(student || teacher) + h) / d
            L_student = CE(student) + (KL(teacher || student) + h) / d; this loss also trains W
    server  averages the students with equal weights

r is the input of a head; W is a linear map, private to the client. Targets are constants: the other
model's probabilities, W r_student in the teacher's h, r_teacher in the student's h, and d. Students
are sent in both directions as the factors of a truncated SVD: of a matrix A [m, n], U [m, K],
sigma [K] and V [K, n], K (m + n + 1) numbers instead of m n. K is the lowest rank whose squared
singular values add up to a share of their total, the energy, which rises linearly from the first
round to the last. A client predicts with its teacher.

Source: Wu et al., "Communication-efficient federated learning via knowledge distillation", Nature
Communications 2022, as a baseline of Yi et al., pFedMoE, 2024 (arXiv:2402.01350), where the
student is a CNN-5; section 8 of fedlib/papers/pfedmoe/README.md.
Official code: wuch15/FedKD compresses gradients of transformers. TsingZ0/HtFLlib compresses
parameters, as here, so without training a student would shrink in every round. But it also divides
KL by the number of classes, lets the gradient of each loss flow into the other model and into d,
and trains W by both losses.
Deviation: if the factors have at least as many numbers as the matrix, their product is sent
instead, so the truncation loses the same. This happens in the first rounds, as new random weights
have high rank. A convolution kernel is a matrix of its output channels by all other dimensions; the
library takes every small window of it for a matrix. Absent clients have no weight, whatever the
run's `aggregation` is. An unseen client predicts with the student. The recorded training loss is
the sum of both losses.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedlib import streams, tree
from fedlib.engine.cohort import Cohort
from fedlib.engine.journal import refuse_divergence
from fedlib.engine.task import Batch, Params, Task, log_probs, mean_from, nll
from fedlib.methods.base import Range
from fedlib.methods.mutual_learning import MutualLearning, State, View, kl_divergence, plain_mean
from fedlib.methods.parts.own_models import place_in_turn
from fedlib.tree import Rows


class Factors(NamedTuple):
    """A matrix of rank K."""

    u: Tensor  # [m, K]
    sigma: Tensor  # [K]
    v: Tensor  # [K, n]

    def product(self) -> Tensor:
        """The matrix -> [m, n]"""
        return self.u * self.sigma @ self.v


Message = dict[str, Tensor | Factors]


@dataclass(frozen=True, kw_only=True)
class FedKD(MutualLearning):
    """Mutual distillation of a private teacher and the shared student `task`.

    Attributes:
      local: solver of all three: teacher, student and W.
      horizon: rounds of the run, over which the energy rises; at least 1.
      first_energy, last_energy: share of the squared singular values that is kept in the first and
        the last round, in (0, 1]; 1 keeps all. The defaults are those of section 8.
    """

    horizon: int
    first_energy: float = 0.95
    last_energy: float = 0.98

    look = "FedKD", "#B07AA1", (5, 1, 0), "dashdot"
    ranges: ClassVar = {
        "horizon": Range(1),
        **dict.fromkeys(("first_energy", "last_energy"), Range(0, 1, "(]")),
    }

    def init(self, num_clients: int, seed: int) -> State:
        """New models: the student, and for clients a teacher and W for each architecture."""
        small = self.draw_small(seed)
        projections = [self.draw_projection(task, seed) for task in self.own.tasks]
        models = {
            "large": self.own.init(num_clients, seed),
            "projection": place_in_turn(projections, num_clients),
        }
        weights = self.joint.trainable({**models, "small": small})
        return State(small, models, self.local.memory(weights, num_clients))

    def draw_projection(self, teacher: Task, seed: int) -> Params:
        """W, from the student's features to a teacher's, initialised like `torch.nn.Linear`."""
        outputs, inputs = teacher.num_features, self.task.num_features
        bound = inputs**-0.5
        drawn = streams.generator(seed, "projection").uniform(-bound, bound, (outputs, inputs))
        return {"weight": torch.from_numpy(drawn).to(self.task.device, self.task.dtype)}

    def energy(self, round: int) -> float:
        """Share of the squared singular values that is kept in `round`, counted from 0."""
        done = min(round / max(self.horizon - 1, 1), 1)
        return self.first_energy + (self.last_energy - self.first_energy) * done

    def round(self, state: State, cohort: Cohort) -> State:
        """Teachers and students train together; students travel compressed.

        Raises:
          DivergedError: for a student whose squared norm is not finite.
        """
        energy = self.energy(cohort.round)
        message = tree.take(cohort.broadcast(compress(state.small, energy)), 0)
        start = tree.take(state.models, cohort.host_ids)
        start |= {"small": cohort.held(recover(message, state.small))}
        trained, memory = self.fit(cohort, start, state.memory)
        students = trained.pop("small")
        apart = tree.unstack(students)
        norms = torch.stack([tree.sqnorm(student) for student in apart])
        when, what = f"in round {cohort.round + 1}", "its student's squared norm"
        refuse_divergence(norms, cohort.host_ids, when, what)
        sent = Rows(compress(student, energy) for student in apart)
        returned = [recover(student, state.small) for student in cohort.collect(sent)]
        return State(plain_mean(tree.stack(returned)), cohort.put(state.models, trained), memory)

    def loss(self, models: dict[str, Params], task: Task, batch: Batch) -> Tensor:
        """L_teacher + L_student; each model's gradient is that of its own loss -> []"""
        teacher, student = self.views(models, task, batch)
        ours, theirs = log_probs(teacher.logits), log_probs(student.logits)
        labels = sum(batch.mean(nll(x, batch.y, self.task.class_weights)) for x in (ours, theirs))
        kl = kl_divergence(theirs, ours) + kl_divergence(ours, theirs)
        hidden = self.hidden_loss(teacher, student, models["projection"]["weight"])
        return labels + batch.mean(kl + hidden) / labels.detach()

    def hidden_loss(self, teacher: View, student: View, w: Tensor) -> Tensor:
        """The sum of h in the teacher's loss and in the student's -> [B]"""
        mapped = student.features @ w.T
        pairs = (teacher.features, mapped.detach()), (teacher.features.detach(), mapped)
        return sum(mean_from(1, (a - b).square()) for a, b in pairs)


# -- low-rank factors -----------------------------------------------------------------------


def compress(params: Params, energy: float) -> Message:
    """The message for ONE model; waits for the device, as shapes depend on the ranks.

    Args:
      params: finite, with finite squares; leaves of one dimension are sent unchanged.
      energy: share of the squared singular values to keep, in (0, 1].
    """
    return {name: factor(x, energy) if x.dim() > 1 else x for name, x in params.items()}


def factor(x: Tensor, energy: float) -> Tensor | Factors:
    """The factors of `x` [m, ...], or their product if that has no more numbers."""
    u, sigma, v = torch.linalg.svd(x.flatten(1), full_matrices=False)
    squares = sigma.square()
    below = squares.cumsum(0) - squares  # energy of all smaller ranks
    rank = int((below < energy * squares.sum()).sum())
    factors = Factors(u[:, :rank], sigma[:rank], v[:rank])
    return factors if tree.numel(factors) < x.numel() else factors.product().reshape(x.shape)


def recover(message: Message, like: Params) -> Params:
    """The model of a message, in the shapes of `like`."""
    return {
        name: x.product().reshape(like[name].shape) if isinstance(x, Factors) else x
        for name, x in message.items()
    }
