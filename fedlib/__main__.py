"""`python -m fedlib COMMAND`: see `fedlib.cli`."""

import sys

from fedlib.workflow import command

if __name__ == "__main__":
    with command.loading():
        from fedlib.cli import main
    sys.exit(command.run(main))
