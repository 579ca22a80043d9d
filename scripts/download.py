"""Put the raw files of a data set in place and write a receipt of them."""

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import command, data, provenance, seals
from fedlib.data.download import fetch, receipt


def main() -> None:
    """Parse the arguments, fetch, write the receipt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help=f"one of {', '.join([*data.NAMES, *data.WEIGHTS])}")
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="folder of raw files")
    parser.add_argument("--receipt", type=Path, help="JSON file to write; RAW/DATASET.json if none")
    parser.add_argument("--spec", help="JSON or @path: {sources: [...]}, which of its sources")
    parser.add_argument("--mirror", help="folder, file:// or http(s):// address to try first")
    parser.add_argument("--code", help="digest of the code this job was planned with")
    args = parser.parse_args()

    module = data.load(args.dataset)
    roots = ("scripts/download.py", f"fedlib.data.{args.dataset}")
    provenance.check_code(args.code, *roots)
    spec = command.json_argument(args.spec) if args.spec else {}
    # One receipt vouches for the files of every source that some federation draws from.
    params = [{"source": source} for source in spec.get("sources", [])] or [{}]
    files = tuple(dict.fromkeys(file for kwargs in params for file in module.sources(**kwargs)))
    fetch(files, args.raw, mirror=args.mirror, report=partial(print, flush=True))
    content = receipt(args.dataset, files, args.raw)
    seals.write_json(args.receipt or args.raw / f"{args.dataset}.json", content)
    print(f"{args.dataset}: {len(content['files'])} raw files in place")
    provenance.assert_covered(*roots)


if __name__ == "__main__":
    sys.exit(command.run(main))
