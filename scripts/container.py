#!/usr/bin/env python3
"""Write Containerfile: the checkout and the packages of requirements.lock, in one image.

The image has the Python of envs/. Its build fails with another lock than that of this run.
`make lock` runs this; tests/test_container.py fails if the file is out of date.
"""

import hashlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fedlib.errors import DataError
from fedlib.files import write_text
from fedlib.workflow import command
from fedlib.workflow.provenance import ROOT

LOCK = "requirements.lock"
# Parts of the workflow; no generated files, and none that only tests need.
PARTS = ("Snakefile", "config.yaml", "config", "envs", "fedlib", "profiles", "rules", "scripts")
PARTS += ("workflow",)
TEMPLATE = """\
# Written by scripts/container.py, which `make lock` runs. Use and limits: docs/clusters.md.
FROM python:{python}-slim-bookworm

LABEL org.opencontainers.image.title="fedlib" \\
      org.opencontainers.image.licenses="Apache-2.0" \\
      fedlib.lock="sha256:{digest}" \\
      fedlib.snakemake="{snakemake}" \\
      fedlib.torch="{torch}"

# Bash, because the commands of the rules are written for it.
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
WORKDIR /fedlib

COPY {lock} ./
RUN echo "{digest}  {lock}" | sha256sum --check --status \\
 && python -m pip install --no-cache-dir --no-deps --require-hashes -r {lock}

{copies}
# What is computed goes into folders that are mounted, whoever the user is; caches go with it. A
# number without an account has no name and no home, which Snakemake asks for.
RUN mkdir -m 777 .snakemake data figures results && useradd --uid 1000 fedlib
ENV USER=fedlib HOME=/tmp XDG_CACHE_HOME=/tmp/cache MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
USER 1000

ENTRYPOINT ["python", "-m", "snakemake"]
CMD ["--cores", "all"]
"""


def main() -> None:
    """Write it."""
    write_text(ROOT / "Containerfile", containerfile(ROOT))


def containerfile(root: Path) -> str:
    """The text for a checkout.

    Raises:
      DataError: if environments have different Pythons, or the lock lacks a package of a label.
    """
    lock = (root / LOCK).read_bytes()
    versions = dict(re.findall(r"^([a-z0-9._-]+)==([^ ]+)", lock.decode("utf-8"), re.MULTILINE))
    texts = [file.read_text(encoding="utf-8") for file in sorted((root / "envs").glob("*.yaml"))]
    pythons = {found for text in texts for found in re.findall(r"- python=(\S+)", text)}
    missing = {"snakemake", "torch"} - versions.keys()
    if len(pythons) != 1 or missing:
        raise DataError(f"envs/ must name one Python, got {pythons}; {LOCK} lacks {missing}")
    files = [part for part in PARTS if (root / part).is_file()]
    folders = [part for part in PARTS if (root / part).is_dir()]
    copies = [f"COPY {' '.join(files)} ./", *(f"COPY {part} ./{part}" for part in folders)]
    return TEMPLATE.format(
        python=pythons.pop(),
        digest=hashlib.sha256(lock).hexdigest(),
        lock=LOCK,
        copies="".join(f"{line}\n" for line in copies),
        **{name: versions[name] for name in ("snakemake", "torch")},
    )


if __name__ == "__main__":
    sys.exit(command.run(main))
