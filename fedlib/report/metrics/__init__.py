"""From raw counts per client to tidy numbers: the only place where an accuracy is computed.

`definitions` has the metrics, `tidy` the rows of one run, `runs` the rows of all runs of a paper,
and `seeds` statistics over seeds.

All accuracies are fractions in [0, 1]. `accuracy` pools the examples of all clients (equal to the
mean of client accuracies weighted by their test counts); the other accuracies weigh clients
equally. A client without examples in a split has no accuracy: it is left out of every metric, and
is NaN only in the table of clients, beside its count of 0. A view without any examples is left out.

Rows have four moments of a run: every evaluated "round"; the "last" one; the "best" one, the
earliest round of highest pooled test accuracy of the seen clients, or of the server if no client
has test examples; and the "chosen" one, the earliest round of least loss on the server's validation
examples, if there are any. The best round is a selection on the test set; tables and figures that
show it must say so.

Source: the metrics of FedEM and pFedMM; neither repository has code for the bottom decile, so
  both readings are here: `bottom10`, the accuracy of the floor(C / 10)-th worst client, and
  `bottom10_mean`, the mean accuracy of those clients (at least one client in both).
"""
