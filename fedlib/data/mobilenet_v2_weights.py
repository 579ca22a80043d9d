"""ImageNet weights of MobileNet-v2 (torchvision's IMAGENET1K_V1): a download, not a federation.

Runs that start from pretrained weights name this module in `Run.weights`; the workflow downloads
the file like a data set's and hands its receipt to the training job.

Source: torchvision.models.MobileNet_V2_Weights.IMAGENET1K_V1. The digits of the SHA-256 that are
published are the eight in the file's name.
"""

from fedlib.data.raw import RawFile

WEIGHTS = RawFile(
    path="mobilenet_v2_weights/mobilenet_v2-b0353104.pth",
    size=None,
    sha256="b0353104",
    urls=("https://download.pytorch.org/models/mobilenet_v2-b0353104.pth",),
)


def sources(**params: object) -> tuple[RawFile, ...]:
    """The one weight file."""
    return (WEIGHTS,)
