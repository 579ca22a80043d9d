"""Jobs that are forks of a process with libraries loaded are the jobs they would be."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys

import pytest
from workflow import is_there, wait_for

from fedlib.workflow import forkclient, forkserver, warm
from fedlib.workflow.forkclient import SERVERS

LIBRARY = "colorsys"  # that nothing else imports
LOADED = f"import sys; print({LIBRARY!r} in sys.modules)"


@pytest.fixture
def servers(monkeypatch):
    """Starts a server of the script job.py, which imports what is named; ends it with the test."""
    started = []

    def start(*names: str, **environment: str) -> subprocess.Popen:
        for name, value in environment.items():  # which the server has, too
            monkeypatch.setenv(name, value)
        server, address = warm._server(names)
        started.append(server)
        monkeypatch.setenv(SERVERS, f"job={address}")
        return server

    yield start
    for server in started:
        server.communicate()  # which closes its standard input


def begin(tmp_path, code: str, *arguments: str, **changes) -> subprocess.Popen:
    """A client that has begun to run a script of this code."""
    script = tmp_path / "job.py"
    script.write_text(code)
    words = [sys.executable, "-I", "-S", warm.HERE / "forkclient.py", script, *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(words, text=True, **pipes | {"env": dict(os.environ)} | changes)


def run(tmp_path, code: str, *arguments: str, given: str = "", **changes) -> tuple[int, str, str]:
    """Exit status, output and errors of a script run by a client."""
    client = begin(tmp_path, code, *arguments, **changes)
    output, errors = client.communicate(given, timeout=60)
    return client.returncode, output, errors


def test_a_job_has_its_libraries_and_is_otherwise_a_script_of_its_own(tmp_path, servers):
    servers(LIBRARY)
    code = """
import json, os, sys
import neighbour
says = [sys.argv, os.getcwd(), sys.stdin.read(), __name__, __file__, dict(os.environ), sys.path[0]]
print(json.dumps([*says, "colorsys" in sys.modules]))
print("problem", file=sys.stderr)
"""
    (tmp_path / "neighbour.py").touch()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    status, output, errors = run(tmp_path, code, "--x", "é $'", given="text", cwd=folder)
    argv, cwd, given, name, file, environment, path, loaded = json.loads(output)
    script = str(tmp_path / "job.py")
    assert (status, errors) == (0, "problem\n")
    assert (argv, cwd, given) == ([script, "--x", "é $'"], str(folder), "text")
    assert (name, file, path, loaded) == ("__main__", script, str(tmp_path), True)
    assert environment == dict(os.environ)


@pytest.mark.parametrize(
    "end, status, said",
    [
        ("sys.exit(3)", 3, ""),
        ("pass", 0, ""),
        ("sys.exit('no such data')", 1, "no such data"),
        ("raise ValueError(7)", 1, "ValueError: 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("atexit.register(os.write, 2, b'late'); sys.exit(4)", 4, "late"),
    ],
)
def test_the_client_ends_as_its_job_ends(tmp_path, servers, end, status, said):
    servers()
    code = f"import atexit, os, signal, sys\nprint('begun', flush=True)\n{end}\n"
    found, output, errors = run(tmp_path, code)
    assert (found, output) == (status, "begun\n")
    assert said in errors


def test_a_signal_to_the_client_is_one_to_the_job(tmp_path, servers):
    servers()
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
time.sleep(60)
"""
    client = begin(tmp_path, code)
    assert client.stdout.readline() == "ready\n"
    client.send_signal(signal.SIGTERM)
    client.communicate(timeout=60)
    assert client.returncode == 143


SAVES = """
import os, signal, sys, time
from pathlib import Path
def save(*_):
    Path("saved").touch()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("who", ["client", "server", "workflow"])
def test_no_job_outlives_who_asked_for_it_and_it_is_told_to_save(tmp_path, servers, who):
    server = servers()
    client = begin(tmp_path, SAVES, cwd=tmp_path)
    job = int(client.stdout.readline())
    if who == "workflow":  # however it ends, what it holds open is closed then
        server.stdin.close()
    else:
        {"client": client, "server": server}[who].kill()
    wait_for((tmp_path / "saved").exists)
    wait_for(lambda: not is_there(job))
    client.communicate(timeout=60)
    assert client.returncode != 0


# --- Sent away ------------------------------------------------------------------------------------


def test_another_environment_than_the_libraries_were_imported_in_gets_a_process_of_its_own(
    tmp_path, servers
):
    servers(LIBRARY)
    assert run(tmp_path, LOADED)[1] == "True\n"
    assert run(tmp_path, LOADED, env={**os.environ, "OMP_NUM_THREADS": "7"})[1] == "False\n"
    assert run(tmp_path, LOADED)[1] == "True\n"


THREAD = "import threading as t, time\nt.Thread(target=time.sleep, args=[60], daemon=True).start()"
FULL = "import os\n\ndef fork():\n    raise BlockingIOError\n\nos.fork = fork"


@pytest.mark.parametrize("code", ["raise ValueError", THREAD, FULL])
def test_failed_imports_threads_and_limits_of_processes_forbid_forks(tmp_path, servers, code):
    (tmp_path / "planted.py").write_text(code)
    servers(LIBRARY, "planted", PYTHONPATH=str(tmp_path))
    code = LOADED + "; import signal as s; print(s.getsignal(s.SIGINT) is s.default_int_handler)"
    assert run(tmp_path, code) == (0, "False\nTrue\n", "")


def test_without_a_server_a_job_is_an_ordinary_process(tmp_path, monkeypatch, servers):
    monkeypatch.delenv(SERVERS, raising=False)
    code = "import sys; print(sys.argv[1:]); sys.exit(5)"
    assert run(tmp_path, code, "a b") == (5, "['a b']\n", "")
    monkeypatch.setenv(SERVERS, "job=fedlib-nobody other")
    assert run(tmp_path, LOADED)[1] == "False\n"
    server = servers(LIBRARY)
    server.kill()
    server.wait()
    assert run(tmp_path, LOADED)[1] == "False\n"


def test_another_user_is_neither_served_nor_trusted(tmp_path, servers, monkeypatch):
    # From its first job on, the server takes this user for another one.
    (tmp_path / "planted.py").write_text("import os\nos.geteuid = lambda: -1")
    servers(LIBRARY, "planted", PYTHONPATH=str(tmp_path))
    other = struct.pack("3i", os.getpid(), os.geteuid() + 1, os.getegid())
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "getsockopt", lambda *_: other)
        connection = socket.socket(socket.AF_UNIX)
        assert not forkclient.is_own(connection) and not forkserver._is_own(connection)
        monkeypatch.chdir(tmp_path)
        assert forkclient.ask(["job.py"]) == forkclient.SENT_AWAY
    assert [run(tmp_path, LOADED)[1] for _ in range(2)] == ["True\n", "False\n"]


@pytest.mark.parametrize(
    "device, visible, variable, platform, wanted",
    [
        ("auto", (), "", "linux", True),
        ("auto", (), "0", "linux", False),
        ("auto", ("0",), "", "linux", False),
        ("cpu", ("0",), "", "linux", True),
        ("cpu", (), "", "darwin", False),
    ],
)
def test_jobs_are_forked_where_that_is_safe_and_not_turned_off(
    monkeypatch, device, visible, variable, platform, wanted
):
    monkeypatch.setattr(warm.gpu, "visible", lambda: visible)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(warm.VARIABLE, variable)
    assert warm.is_wanted(device) is wanted
