"""Put the raw files of a data set in place and write a receipt of them."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib import seals
from fedlib.data import downloads, sources
from fedlib.data.checks import check_choice
from fedlib.data.download import fetch, receipt
from fedlib.errors import plain
from fedlib.workflow import command, provenance


def main() -> None:
    """Parse the arguments, fetch, write the receipt."""
    names = [*sources.NAMES, *downloads.weights()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help=f"one of {', '.join(names)}; with -SOURCE for another")
    parser.add_argument("--raw", type=Path, default=Path("data/raw"), help="folder of raw files")
    parser.add_argument("--receipt", type=Path, help="JSON file to write; RAW/DATASET.json if none")
    parser.add_argument("--mirror", help="folder or http(s):// address to try first")
    parser.add_argument("--code", help="digest of the code this job was planned with")
    args = parser.parse_args()

    name, source = downloads.of_key(args.dataset)
    check_choice("data set", name, names)
    provenance.check_code(args.code, "scripts/download.py")
    files = downloads.files(name, source).values()
    fetch(files, args.raw, mirror=args.mirror, report=report)
    content = receipt(args.dataset, files, args.raw)
    seals.write_json(args.receipt or args.raw / f"{args.dataset}.json", content)
    print(f"{args.dataset}: {len(content['files'])} raw files in place")
    provenance.assert_covered("scripts/download.py")


def report(line: str) -> None:
    """Print a line of progress, which may contain text from a server."""
    print(plain(line), flush=True)


if __name__ == "__main__":
    sys.exit(command.run(main))
