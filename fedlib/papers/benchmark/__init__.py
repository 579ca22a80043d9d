"""Which method when: the families of the five papers in made-up worlds and real federations.

This is no published paper, but a comparison of ours. Every method has the same models, rounds and
number of tuning trials, and test examples choose nothing.

Scales:
  demo     one world at two divergences and sizes, two federations of digits, few methods, three
           trials
  reduced  seven worlds, a phase diagram of 16, twelve real federations, one of unlike models, one
           with a server that has data; twelve trials, three seeds
  full     the same with a phase diagram of 25, 32 trials and ten seeds
"""

from fedlib.papers import _frame
from fedlib.papers.benchmark import exhibits, scales

declare = _frame.paper(
    "benchmark",
    "Which method when",
    "A comparison by this project of the methods of the papers that it reproduces",
    scales,
    exhibits,
)
