"""A table of probabilities by expert over the rounds: a row of panels per run.

Examples are q(expert | label) of FedMix, or a plain mixture's mean gate weights of each expert for
examples of each label.

Source: Reisser et al., "Federated Mixture of Experts", arXiv:2107.06724, figure 14; specification
section 7.4.
"""

from matplotlib.figure import Figure

from fedlib.report.figures import canvas, heat, style
from fedlib.report.inputs import Inputs
from fedlib.report.metrics import TABLE


@style.styled()
def draw(given: Inputs) -> Figure:
    """The figure, of one seed, because the numbers of experts mean nothing across seeds.

    Raises:
      DataError: if a run recorded no table, or none at one of the rounds.
    """
    exhibit, kind = given.exhibit, given.kind
    found = [heat.at_rounds(given, run, TABLE, kind.rounds) for run in exhibit["runs"]]
    tables = [[heat.table(cells).to_numpy() for cells in some.values()] for some in found]
    titles = [[f"Round {number}" for number in some] for some in found]
    figure, grid = heat.panels(titles)
    most = 1.0 if max(table.max() for some in tables for table in some) > 0.5 else 0.5
    free = iter(grid)
    for run, some in zip(exhibit["runs"], tables, strict=True):
        for number, (table, axes) in enumerate(zip(some, free, strict=False)):
            image = heat.draw(axes, table, heat.experts(table.shape[1]), most=most)
            axes.set_ylabel("" if number else f"{heat.of_run(exhibit, run)}{kind.rows}")
    heat.scale(figure, image, grid, kind.values)
    seed = canvas.first_seed_note(exhibit, "experts of different seeds do not correspond")
    return canvas.finish(figure, exhibit, [], seed)
