"""What was fixed before the study of the luck of tuning: question, methods, metric, exclusions.

The page names the commit in which this file was last changed. Whatever is not here is exploratory.
"""

DATE = "2026-11-27"
QUESTION = "How much of a ranking of methods is luck of the trials in which they were tuned?"
PRIMARY = "mean test accuracy of the seen clients after the last round, each client counting once"
TRIALS = 12  # of each tuning, all of them to the last round
SEED = 200  # the tuning for training seed s has seed 200 + s, which nobody had looked at
TUNINGS = (1, 2, 3)  # training seeds, each with a tuning, weights, cohorts and order of its own
REFERENCE = "fedavg-plus"
HYPOTHESES = (
    "Of each of the seven differences from fine-tuned FedAvg that one tuning decided (APFL, "
    "FedRep, FedEM, pFedMM, pFedMoE, FML and FedProto, all below it), the sign is the same, and "
    "Holm's p at most 0.05, with the mean over three tunings (eleven tests).",
    "So it is in 95 % of the draws of one of three tunings for each method and federation.",
    "So it is if data sets are the sample, and not federations (Student's t test of the means of "
    "five data sets, eleven tests, Holm).",
)
ANALYSES = (
    "Standard deviations of accuracy, and of its difference from fine-tuned FedAvg, by data set, "
    "federation, tuning and training: a mixed model for each method. The first study's runs, "
    "whose three seeds share a tuning, tell trainings from tunings; their mean may be shifted, as "
    "most of their trials stopped early.",
    "Expected highest validation accuracy of k of the 36 trials, for k = 1 to 36.",
    "Intervals of 95 % of each method's rank by its mean over federations: a tuning drawn for each "
    "method and federation; and data sets drawn, too, with all their federations.",
)
LOOKS = "Once, when all twelve federations are finished. What is shown earlier says so."
EXCLUSIONS = (
    "No run is left out for its result; a diverged trial is never chosen, and counts as 0 among "
    "the trials; a diverged run counts with the accuracy that it has.",
)
RATES = {  # of the local solver by data set, where they are not those of the first study
    # Chosen on trials of Local alone, on the first study's cut for tuning: see README.md.
    "emnist": (0.01, 0.25),
    "femnist": (0.04, 0.25),
}
