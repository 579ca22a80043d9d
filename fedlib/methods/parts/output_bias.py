"""The bias of the last layer, which can represent the frequencies of a client's labels."""

from fedlib.engine.task import Task


def output_bias(task: Task) -> str:
    """Name of the only bias of the head; ValueError if it has none or several."""
    biases = [name for name in task.split(task.shapes)[1] if name.endswith("bias")]
    if len(biases) != 1:
        raise ValueError(f"the model needs a head with one bias, got {biases or 'none'}")
    return biases[0]
