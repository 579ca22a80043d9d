"""Cut a data set into the clients that a data spec declares: shards and their manifest."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from fedlib import seals
from fedlib.data import downloads
from fedlib.data.build import build, roots
from fedlib.data.download import check_receipt
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the arguments, build the federation, write it."""
    outputs = {"shards": "HDF5 file to write", "manifest": "JSON file to write"}
    parser = command.job_parser(__doc__, "federation (fedlib.spec.Data)", **outputs)
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="folder of raw files")
    args = parser.parse_args()

    spec = command.json_argument(args.spec)
    modules = ("scripts/partition.py", *roots(spec))
    code = provenance.check_code(args.code, *modules)
    data = spec["dataset"], spec["params"].get("source")
    receipt = args.raw / f"{downloads.key(*data)}.json"  # missing if files were copied by hand
    own = downloads.own_files(*data, args.raw)
    if receipt.exists() and not own:
        check_receipt(receipt, downloads.files(*data).values(), args.raw)
    read = own or [receipt] * receipt.exists()
    inputs = downloads.with_names(seals.contents(*read), spec["dataset"], own, args.raw)
    federation = build(spec, args.raw)
    made = seals.Made(seals.spec_digest(spec), code, inputs, seals.contents())
    federation.save(args.shards, args.manifest, made)
    print(f"{federation.num_clients} owners of {len(federation.x)} examples: {args.shards}")
    provenance.assert_covered(*modules)


if __name__ == "__main__":
    sys.exit(command.run(main))
