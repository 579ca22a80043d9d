"""Text for LaTeX."""

TEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "−": "$-$",
    "½": r"$\frac{1}{2}$",
    "ʳ": "$^r$",
    "ᶜ": "$^c$",
}
# Characters that formulas have a command for, each with its name.
COMMANDS = """± pm, × times, ≤ leq, ≥ geq, → rightarrow, α alpha, β beta, ε varepsilon, η eta,
λ lambda, μ mu, π pi, σ sigma"""
TEX |= {char: rf"$\{name}$" for char, name in map(str.split, COMMANDS.split(","))}


def escape(text: str) -> str:
    """`text` with characters that LaTeX does not print escaped or spelt out."""
    return "".join(TEX.get(char, char) for char in text)
