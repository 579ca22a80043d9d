"""Weights of characters in FedEM's training loss on Shakespeare; rare ones have more weight."""

import string

# Factors of the weight 8, which all other characters have (README.md, section 3.9).
_COMMON = {
    **{"\n": 0.437953, " ": 0.042501, ",": 0.655960, ".": 0.698723, "I": 0.977749},
    **{"a": 0.222602, "c": 0.813312, "d": 0.407186, "e": 0.134556, "f": 0.790867},
    **{"g": 0.953292, "h": 0.249691, "i": 0.274449, "l": 0.372965, "m": 0.569937},
    **{"n": 0.252073, "o": 0.193414, "r": 0.260357, "s": 0.253478, "t": 0.187647},
    **{"u": 0.474301, "w": 0.747062, "y": 0.638830},
}
CLASS_WEIGHTS = tuple(8 * _COMMON.get(character, 1.0) for character in string.printable)  # [L]
