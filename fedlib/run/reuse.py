"""What a final evaluation need not compute again: what training's last evaluation found.

Both score the same state on the same examples. It is the same computation, to the last bit, where
it would be done by the same code with the same data on a machine of the same kind; otherwise the
final evaluation does it anew. That the history is as it was written, and of this very state, is
known by the digests that both have (`fedlib.seals`, `fedlib.run.checkpoint`).
"""

from collections.abc import Mapping
from dataclasses import replace

from fedlib.results import RunResult, Scores, View

# Of the records of training and evaluation, what a number's last bits can depend on.
MADE_WITH = (
    *("python", "numpy", "torch", "platform", "cpu", "gpu", "threads"),
    *("device", "precision", "executor", "weights_sha256"),
)


def found_before(
    history: RunResult, rounds: int, record: Mapping[str, object], trained: Mapping[str, object]
) -> dict[View, Scores]:
    """Scores of the final state by view, T = 1; {} unless they would be the same here.

    Args:
      history: of the run.
      rounds: of the run, after which the last evaluation was.
      record: of what the final evaluation is made with, as its provenance has it.
      trained: digests of the data and of the code that a training would have now, by their names
        in the provenance of the history.
    """
    then = history.provenance
    alike = all(then.get(name) == record.get(name) for name in MADE_WITH)
    current = all(then.get(name) == digest for name, digest in trained.items())
    if not (alike and current) or history.round[-1] != rounds:
        return {}
    return {
        view: replace(found, correct=found.correct[-1:], loss=found.loss[-1:])
        for view, found in history.scores.items()
    }
