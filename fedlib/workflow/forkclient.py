"""Run a script in a fork of a process that has its libraries: `python forkclient.py SCRIPT ...`.

This process has the arguments, files, environment, signals and exit status of `python SCRIPT ...`.
If `forkserver.py` does not run or refuses the job, this process runs the script itself.

Every job starts with this script, so it imports little, and nothing of `fedlib`.
"""

import json
import os
import signal
import socket
import struct
import sys

SERVERS = "FEDLIB_WARM_SOCKETS"  # environment: addresses of servers, as script=address ...
SENT_AWAY = 1 << 16  # as in forkserver.py
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def ask(argv: list[str]) -> int:
    """Exit status of the job, negative for a signal; `SENT_AWAY` if the server refuses it."""
    script = os.path.basename(argv[0]).removesuffix(".py")
    connection = socket.socket(socket.AF_UNIX)
    try:
        known = dict(word.split("=", 1) for word in os.environ.get(SERVERS, "").split())
        connection.connect(f"\0{known[script]}")
        if not is_own(connection):  # the server has ended, and another user has taken its place
            return SENT_AWAY
        request = json.dumps([argv, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(connection, [struct.pack("q", len(request))], [0, 1, 2])
        connection.sendall(request)
    except (KeyError, OSError, ValueError):
        return SENT_AWAY
    # Ctrl-C also reaches the job, which decides how to end. It has a handler here, as a script that
    # this process becomes would ignore what this process ignores.
    for number in (signal.SIGINT, *PASSED_ON):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda x, _: x in PASSED_ON and connection.send(bytes([x])))
    try:
        return struct.unpack("i", connection.recv(4))[0]
    except (ConnectionError, struct.error):
        sys.exit("error: the process that this job was forked from has ended; run again")


def is_own(connection: socket.socket) -> bool:
    """Whether a process of the same user is at the other end."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] == os.geteuid()


def main() -> None:
    """Run the script, and end with its exit status or signal."""
    if (status := ask(sys.argv[1:])) == SENT_AWAY:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main()
