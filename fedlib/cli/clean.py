"""Delete the results of a configuration."""

import argparse
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from fedlib import locks
from fedlib.cli import arguments
from fedlib.errors import ConfigError
from fedlib.workflow.plan import Plan

YES = ("y", "yes")


def main(args: argparse.Namespace) -> None:
    """Lock the folder, and delete after the user's consent."""
    plan = arguments.plan(args)
    locks.hold_folder(command=args.said)
    folders = made_folders(plan)
    for folder in folders:
        print(f"{folder}: {size(folder)}")
    if folders and sys.stdin.isatty() and input("Delete? [y/N] ").strip().lower() not in YES:
        print("Nothing was deleted.")
        return
    clean(folders)
    print("Deleted." if folders else f"There is nothing of {plan.folder} to delete.")
    print("data/raw is untouched. Delete it by hand if you want to download again.")


def made_folders(plan: Plan) -> list[Path]:
    """The existing folders of results and figures of a configuration.

    Raises:
      ConfigError: if the raw files are in one of them.
    """
    folders = [Path(plan.path(name)) for name in ("results", "figures")]
    raw = Path(plan.config["raw"]).resolve()
    for folder in folders:
        if raw.is_relative_to(folder.resolve()):
            raise ConfigError(f"raw: the raw files in {raw} are in {folder}, which is not deleted")
    return [folder for folder in folders if folder.is_symlink() or folder.exists()]


def size(folder: Path) -> str:
    """The size of a folder as text; for a link its target."""
    if folder.is_symlink():
        return f"a link to {folder.readlink()}, which stays"
    sizes = [path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()]
    return f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes):,} file{'s' * (len(sizes) != 1)}"


def clean(folders: Iterable[Path]) -> None:
    """Delete folders; of a link only the link."""
    for folder in folders:
        folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)
