#!/usr/bin/env python3
"""Write envs/NAME.linux-64.pin.txt: every package of an environment, by its address and digest.

If the file exists, conda installs its packages and solves nothing. `make pins` runs this.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.files import write_text
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT

PLATFORM = "linux-64"


def main() -> None:
    """Write the file of each environment in envs/."""
    import yaml

    for file in sorted((ROOT / "envs").glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        channels = [name for name in content["channels"] if name != "nodefaults"]
        text = asyncio.run(pinned(content["dependencies"], channels))
        write_text(file.with_suffix(f".{PLATFORM}.pin.txt"), text)


async def pinned(specs: Sequence[str], channels: Sequence[str]) -> str:
    """The packages of an environment, in the format of `conda create --file`."""
    import rattler

    records = await rattler.solve(
        sources=channels,
        specs=specs,
        virtual_packages=rattler.VirtualPackage.detect(),
        platforms=[PLATFORM, "noarch"],
    )
    lines = sorted(f"{record.url}#{record.md5.hex()}" for record in records)
    return "\n".join(["@EXPLICIT", *lines]) + "\n"


if __name__ == "__main__":
    sys.exit(command.run(main))
