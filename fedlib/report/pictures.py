"""The pictures of a figure, with their digests in a sealed file beside them."""

from pathlib import Path

from fedlib import files, seals
from fedlib.errors import DataError

DIGESTS = "sha256"  # of the pictures, by the ending of their name
PANELS = "panels"
REMEDY = "delete it and run the figure stage"


def vouch(
    json: Path, pictures: list[Path], spec: dict, code: str, inputs: str, panels: list[dict]
) -> None:
    """Record the digests of pictures, the numbers they show, and their origin.

    Args:
      code: digest of the code of their job.
      inputs: `contents` of the files that the job read.
      panels: see `fedlib.report.figures.numbers`.
    """
    made = seals.Made(seals.spec_digest(spec), code, inputs, seals.contents(*pictures))
    digests = {path.suffix[1:]: files.digest(path) for path in pictures}
    seals.write_json(json, {seals.MADE: str(made), DIGESTS: digests, PANELS: panels})


def panels(picture: Path) -> list[dict]:
    """The numbers that a figure shows; `picture` is its path without the ending.

    Raises:
      DataError: if the JSON file is missing or damaged.
    """
    return seals.read_json(picture.with_name(f"{picture.name}.json"), REMEDY, has=(PANELS,))[PANELS]


def require(path: Path, stage: str) -> Path:
    """The path of a result of a stage.

    Raises:
      DataError: if there is no such file.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; run the {stage} stage first")
    return path


def check(json: Path, spec: str | None) -> None:
    """Check that the pictures are those that `vouch` recorded.

    Args:
      json: file that `vouch` wrote, named as the pictures but for the ending.
      spec: digest of the specification expected of them; None if unknown.

    Raises:
      DataError: if a file is missing or changed, or has another specification.
    """
    digests = seals.read_json(json, REMEDY, has=(DIGESTS,))[DIGESTS]
    if spec is not None:
        seals.check_spec(json, seals.origin(json).spec, spec)
    for ending, expected in digests.items():
        picture = require(json.with_suffix(f".{ending}"), "figure")
        if files.digest(picture) != expected:
            raise DataError(f"{picture} is not the picture that {json} was written for; {REMEDY}")
