"""`python -m fedlib COMMAND`: see `fedlib.cli`."""

import sys

from fedlib.workflow import command


def main() -> None:
    """Run the command of the command line."""
    from fedlib import cli  # takes a moment

    cli.main()


if __name__ == "__main__":
    command.tell_interrupts()
    sys.exit(command.run(main))
