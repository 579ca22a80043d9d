"""Cut a data set into the clients that a data spec declares: shards and their manifest."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from fedlib import seals
from fedlib.data.build import build, roots
from fedlib.federation import CLIENTS, GROUPS, SPLITS, Federation
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the arguments, build the federation, write it."""
    made = {"shards": "HDF5 file to write", "manifest": "JSON file to write"}
    parser = command.job_parser(__doc__, "federation (fedlib.spec.Data)", **made)
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="folder of raw files")
    args = parser.parse_args()

    spec = command.json_argument(args.spec)
    modules = ("scripts/partition.py", *roots(spec))
    code = provenance.check_code(args.code, *modules)
    federation = build(spec, args.raw)
    receipt = args.raw / f"{spec['dataset']}.json"  # missing if files were copied by hand
    inputs = seals.contents(*([receipt] if receipt.exists() else []))
    made = seals.Made(seals.spec_digest(spec), code, inputs, seals.contents())
    federation.save(args.shards, args.manifest, made)
    print(summary(federation))
    provenance.assert_covered(*modules)


def summary(federation: Federation) -> str:
    """Three lines: clients by group, examples by split and the spread of client sizes."""
    numbers = {group: len(federation.ids(group)) for group in GROUPS}
    asked = federation.spec["partition"].get("num_clients", 0)
    left = asked - sum(numbers[group] for group in CLIENTS)
    shown = [group for group in GROUPS if group in CLIENTS or numbers[group]]
    clients = ", ".join(f"{numbers[group]} {group}" for group in shown)
    clients += f"; {left} of {asked} left out, with too few examples" if left > 0 else ""
    sizes = {name: federation.split(name).sizes for name in SPLITS}
    examples = ", ".join(f"{size.sum()} {name}" for name, size in sizes.items())
    total = np.sum(list(sizes.values()), axis=0)[federation.group < len(CLIENTS)]
    return (
        f"clients:     {clients}\n"
        f"examples:    {examples}\n"
        f"client size: min {total.min()}, median {np.median(total):g}, max {total.max()}"
    )


if __name__ == "__main__":
    sys.exit(command.run(main))
