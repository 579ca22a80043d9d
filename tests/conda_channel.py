"""A conda channel on this disk with the lock's packages, and as much conda as Snakemake asks for.

Each package is one that is installed here, under its name at conda-forge, with its version and its
dependencies as its wheel states them; its files are links to those that are installed. `python` is
the interpreter that runs this. So an environment holds what its file asks for and what that needs,
and nothing else of what is installed. Made and read with py-rattler.

As a command it answers what Snakemake asks conda: `python conda_channel.py env create ...`.
"""

import asyncio
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import sys
import sysconfig
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

CONDA_NAME = {"matplotlib": "matplotlib-base", "snakemake": "snakemake-minimal", "torch": "pytorch"}
CHANNEL = "FEDLIB_TEST_CHANNEL"  # environment: stands for every channel that a file names
CHANNEL_OF_FILES = "conda-forge"
VERSION = "99.1.0"
SITE = PurePosixPath("lib") / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def conda_name(name: str) -> str:
    """Of a package, as conda-forge has it."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    return CONDA_NAME.get(name, name)


def make(folder: Path, python: str) -> None:
    """Write the channel.

    Args:
      python: the version that `python` is to have.
    """
    from rattler.index import index_fs

    installed = list(importlib.metadata.distributions())
    names = {conda_name(dist.name) for dist in installed}
    owners = Counter(part for dist in installed for part in _prefixes(dist))
    (folder / "noarch").mkdir(parents=True)
    for dist in installed:
        depends = [f"python {_python(python)}", *_depends(dist, names)]
        links = {str(SITE / path): str(target) for path, target in _links(dist, owners).items()}
        _write(folder, conda_name(dist.name), dist.version, depends, links)
    _write(folder, "python", f"{python}.0", (), *_interpreter())
    asyncio.run(index_fs(folder))


def _python(version: str) -> str:
    return f">={version},<{version.rpartition('.')[0]}.{int(version.rpartition('.')[2]) + 1}"


def _depends(dist: importlib.metadata.Distribution, names: set[str]) -> Iterable[str]:
    """What a wheel needs on this machine, as conda writes it; less what the lock leaves out."""
    from packaging.requirements import Requirement

    for text in dist.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            if conda_name(needed.name) in names:
                yield f"{conda_name(needed.name)} {needed.specifier}".strip()


def _files(dist: importlib.metadata.Distribution) -> Iterable[PurePosixPath]:
    """Of a wheel, in site-packages; without what Python writes itself."""
    for file in dist.files or ():
        if file.parts[0] != ".." and "__pycache__" not in file.parts:
            yield PurePosixPath(file)


def _prefixes(dist: importlib.metadata.Distribution) -> set[PurePosixPath]:
    """Its files and all folders they are in."""
    files = set(_files(dist))
    return files | {folder for file in files for folder in file.parents if folder.parts}


def _links(
    dist: importlib.metadata.Distribution, owners: Counter
) -> dict[PurePosixPath, PurePosixPath]:
    """The largest folders and the files that are this wheel's alone, and where they are."""
    found = {}
    for file in _files(dist):
        steps = [*reversed([folder for folder in file.parents if folder.parts]), file]
        own = next((step for step in steps if owners[step] == 1), file)
        found[own] = Path(dist.locate_file(own)).resolve()
    return found


def _interpreter() -> tuple[dict[str, str], dict[str, str]]:
    """Links and texts that make a prefix a place of this Python, with packages of its own."""
    real = Path(sysconfig.get_config_var("BINDIR")) / Path(sys._base_executable).name
    links = {f"bin/{name}": str(real) for name in ("python", "python3")}
    text = f"home = {real.parent}\ninclude-system-site-packages = false\nversion = {VERSION}\n"
    return links, {"pyvenv.cfg": text}


def _write(
    folder: Path,
    name: str,
    version: str,
    depends: Iterable[str],
    links: dict[str, str],
    texts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A package of the channel."""
    index = {"name": name, "version": version, "build": "0", "build_number": 0}
    index |= {"depends": list(depends), "subdir": "noarch", "noarch": "generic"}
    index |= {"timestamp": 1700000000000}
    paths = [{"_path": path, "path_type": "softlink", "size_in_bytes": 0} for path in links]
    paths = [{**entry, "sha256": hashlib.sha256(b"").hexdigest()} for entry in paths]
    for path, text in texts.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        entry = {"_path": path, "path_type": "hardlink", "size_in_bytes": len(text)}
        paths.append({**entry, "sha256": digest})
    about = {"info/index.json": index, "info/paths.json": {"paths_version": 1, "paths": paths}}
    members = {path: json.dumps(content) for path, content in about.items()}
    members |= {"info/files": "\n".join([*links, *texts]), **texts}
    with tarfile.open(folder / "noarch" / f"{name}-{version}-0.tar.bz2", "w:bz2") as archive:
        for path, text in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
        for path, target in links.items():
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)


async def solved(specs: Iterable[str], channel: Path) -> list:
    """Records of the packages of an environment."""
    from rattler import VirtualPackage, solve

    return await solve(
        sources=[channel.as_uri()],
        specs=list(specs),
        virtual_packages=VirtualPackage.detect(),
        platforms=["linux-64", "noarch"],
    )


def write_conda(folder: Path) -> None:
    """A command `conda` in a folder `bin`, and the `activate` that it has."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/conda").write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(__file__)} "$@"\n'
    )
    (folder / "bin/activate").write_text('export PATH="$1/bin:$PATH" CONDA_PREFIX="$1"\n')
    (folder / "bin/conda").chmod(0o755)


async def _create(prefix: Path, file: Path) -> None:
    """`conda env create`."""
    import yaml
    from rattler import install

    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    if content["channels"] != [CHANNEL_OF_FILES, "nodefaults"]:
        raise SystemExit(f"there is only {CHANNEL_OF_FILES} here, got {content['channels']}")
    channel = Path(os.environ[CHANNEL])
    records = await solved(content["dependencies"], channel)
    cache = channel.parent / "cache"
    await install(records, target_prefix=prefix, cache_dir=cache, show_progress=False)


def main(words: list[str]) -> None:
    """Answer as conda does."""
    answers = {
        "info": {"conda_prefix": str(Path(os.environ[CHANNEL]).parent), "platform": "linux-64"},
        "config": {"get": {"channel_priority": "strict"}},
    }
    if words == ["--version"]:
        print(f"conda {VERSION}")
    elif words[0] in answers:
        print(json.dumps(answers[words[0]]))
    elif words[:2] == ["env", "create"]:
        options = dict(zip(words, words[1:], strict=False))
        asyncio.run(_create(Path(options["--prefix"]), Path(options["--file"])))
    elif words[0] != "clean":
        raise SystemExit(f"this conda does not know {words}")
    sys.stdout.flush()
    os._exit(0)  # rattler may abort at the end of the interpreter


if __name__ == "__main__":
    main(sys.argv[1:])
