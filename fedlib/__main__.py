"""`python -m fedlib COMMAND`: see `fedlib.cli`."""

import sys

from fedlib.workflow import command

if __name__ == "__main__":
    command.tell_interrupts()
    from fedlib.cli import main  # takes a moment

    sys.exit(command.run(main))
