"""The pictures of a figure, for which a sealed file beside them vouches."""

from pathlib import Path

from fedlib import files, seals
from fedlib.errors import DataError

DIGESTS = "sha256"  # of the pictures, by the ending of their name
PANELS = "panels"
REMEDY = "delete it and run the figure stage"


def vouch(
    json: Path, pictures: list[Path], spec: dict, code: str, inputs: list[Path], panels: list[dict]
) -> None:
    """Write down what pictures hold, the numbers they show, and of what they are the result.

    Args:
      code: digest of the code of their job; inputs: files that it read.
      panels: see `fedlib.report.figures.numbers`.
    """
    beside, read = seals.contents(*pictures), seals.contents(*inputs)
    made = seals.Made(seals.spec_digest(spec), code, read, beside)
    digests = {path.suffix[1:]: files.digest(path) for path in pictures}
    seals.write_json(json, {seals.MADE: str(made), DIGESTS: digests, PANELS: panels})


def panels(picture: Path) -> list[dict]:
    """The numbers that a figure shows; `picture` has its path up to the ending.

    Raises:
      DataError: if its file is missing or damaged.
    """
    return seals.read_json(picture.with_name(f"{picture.name}.json"), REMEDY, has=(PANELS,))[PANELS]


def check(json: Path, spec: str | None) -> None:
    """Nothing, if the pictures are those that `vouch` has seen.

    Args:
      json: has the name of the pictures up to their ending.
      spec: digest of the specification that they should be the result of; None if nobody knows.

    Raises:
      DataError: if a file is missing, not as it was written or the result of something else.
    """
    digests = seals.read_json(json, REMEDY, has=(DIGESTS,))[DIGESTS]
    if spec is not None:
        seals.check_spec(json, seals.made(json).spec, spec)
    for ending, expected in digests.items():
        picture = json.with_suffix(f".{ending}")
        if not picture.exists():
            raise DataError(f"{picture} does not exist; run the figure stage first")
        if files.digest(picture) != expected:
            raise DataError(f"{picture} is not the picture that {json} was written for; {REMEDY}")
