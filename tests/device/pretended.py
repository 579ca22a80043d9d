"""Devices "pretended:0" and "pretended:1" for PyTorch, which fedlib takes for two GPUs.

`install` comes before the first import of fedlib: "cuda" in its strings becomes "pretended" as its
modules are imported, so that it takes the ways of a GPU, and the functions of `torch.cuda` that it
calls are replaced. What the devices are is said in pretended.cpp.

A captured graph is the list of its operations. Capturing leaves all memory as it was; a replay does
the operations again, on the memory that they had. What is done on another device than the one that
captures is not in the list.
"""

import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "pretended"
SOURCE = Path(__file__).with_suffix(".cpp")
TOTAL_MEMORY = 80 * 2**30
core: ModuleType | None = None  # the extension
streams: list = [SimpleNamespace(device=None)]  # the default, then those entered; the last is used
lost: set = set()  # memory of captures that failed


def missing() -> str | None:
    """Why the extension cannot be built here; None if it can."""
    if shutil.which("c++") is None:
        return "no C++ compiler (c++) for the pretended device"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "no header files of Python for the pretended device"
    return None


def library() -> Path:
    """The compiled extension; compiled once for each version of PyTorch, Python and the source."""
    parts = torch.__version__, sys.version, SOURCE.read_text(encoding="utf-8")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    own = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)  # a virtual environment
    home = Path(sys.prefix if own else f"{tempfile.gettempdir()}/fedlib-device-{os.getuid()}")
    home.mkdir(mode=0o700, exist_ok=True)
    path = home / f"pretended-{digest}.so"
    if not path.exists():
        from torch.utils import cpp_extension

        paths = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
        with tempfile.TemporaryDirectory(dir=home) as folder:
            made = Path(folder) / "made.so"
            command = ["c++", "-std=c++20", "-O1", "-g0", "-w", "-shared", "-fPIC"]
            command += [f"-DTORCH_EXTENSION_NAME={NAME}_core", *(f"-I{path}" for path in paths)]
            abi = int(torch.compiled_with_cxx11_abi())
            command += [f"-D_GLIBCXX_USE_CXX11_ABI={abi}", str(SOURCE), "-o", str(made)]
            command += [f"-L{path}" for path in cpp_extension.library_paths()]
            command += [f"-l{name}" for name in ("c10", "torch", "torch_cpu", "torch_python")]
            subprocess.run(command, check=True)
            made.rename(path)
    return path


def install() -> None:
    """Add the devices to PyTorch, and have fedlib take them for GPUs."""
    global core
    file, name = library(), f"{NAME}_core"
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    core = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(core)
    torch.utils.rename_privateuse1_backend(NAME)
    known = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 2,
        "_is_in_bad_fork": False,
        "_lazy_init": None,
        "manual_seed_all": None,
        "get_amp_supported_dtype": [torch.bfloat16, torch.float16],
    }
    module = ModuleType(f"torch.{NAME}")
    for name, answer in known.items():
        setattr(module, name, _always(answer))
    module.current_device = core.current
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    cuda = {
        "CUDAGraph": Graph,
        "Stream": lambda device=None, **_: SimpleNamespace(device=_index(device)),
        "current_device": core.current,
        "current_stream": lambda device=None: streams[-1],
        "default_stream": lambda device=None: streams[0],
        "device": current,
        "get_device_name": lambda device=None: f"Pretended GPU {_index(device)}",
        "get_device_properties": lambda device=None: SimpleNamespace(
            name=torch.cuda.get_device_name(device), total_memory=TOTAL_MEMORY
        ),
        "graph": capture,
        "graph_pool_handle": object,
        "stream": stream,
        "max_memory_allocated": lambda device=None: core.peak(),
        "reset_peak_memory_stats": lambda device=None: core.forget_peak(),
        **{name: _always(known[name]) for name in ("is_available", "device_count")},
    }
    for name in ("synchronize", "empty_cache", "manual_seed_all"):
        cuda[name] = _always(None)
    for name, function in cuda.items():
        setattr(torch.cuda, name, function)
    sys.meta_path.insert(0, _Finder())


def _always(answer):
    return lambda *args, **options: answer


def _index(device) -> int:
    """Number of a device, by its name, `torch.device` or number; without one the current."""
    found = device if isinstance(device, int | None) else torch.device(device).index
    return core.current() if found is None else found


@contextlib.contextmanager
def current(device):
    """As `torch.cuda.device`."""
    before = core.exchange(_index(device))
    try:
        yield
    finally:
        core.exchange(before)


@contextlib.contextmanager
def stream(entered):
    """As `torch.cuda.stream`."""
    before = len(streams)
    streams.append(entered)
    try:
        yield
    finally:
        del streams[before:]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of fedlib and the benchmarks, and has `_Loader` read them."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ("fedlib", "benchmarks"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        tree = ast.parse(self.get_data(self.path), self.path)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = re.sub(r"\bcuda\b", NAME, node.value)
        return compile(tree, self.path, "exec")


@contextlib.contextmanager
def watching(inside=lambda: False):
    """A Counter of what made the host wait: (what, module:function of fedlib, `inside()` then)."""
    found: Counter = Counter()

    def note(what: str) -> None:
        frame, place = sys._getframe(1), "backward"  # of autograd's own threads
        while frame is not None:
            _, there, module = frame.f_code.co_filename.rpartition("/fedlib/")
            if there:
                place = f"{module}:{frame.f_code.co_name}"
                if module.startswith("engine/device"):  # it only copies for others
                    frame = frame.f_back
                    continue
                break
            frame = frame.f_back
        found[what, place, inside()] += 1

    core.listen(note)
    try:
        yield found
    finally:
        core.listen(None)


class Graph:
    """As `torch.cuda.CUDAGraph`."""

    def __init__(self):
        self.calls: list = []
        self.kept: list = []  # views, whose memory must stay

    def replay(self) -> None:
        """Do the operations again; results go where they were."""
        with torch.no_grad():
            for op, args, named, result in self.calls:
                again = op(*args, **named)
                for old, new in zip(_tensors(result), _tensors(again), strict=True):
                    if core.memory_of(old) != core.memory_of(new):
                        old.copy_(new)


class _Recording(TorchDispatchMode):
    """Notes operations, what the memory that they got had in it, and the memory that they made."""

    def __init__(self, graph: Graph, device: int):
        super().__init__()
        self.graph, self.device = graph, device
        self.before: dict = {}
        self.made: dict = {}

    @classmethod
    def _should_skip_dynamo(cls):  # otherwise PyTorch loads its compiler, for seconds
        return False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        named = kwargs or {}
        given = {core.memory_of(x): x for x in _tensors((args, named)) if x.device.type == NAME}
        if any(x.device.index != self.device for x in given.values()):
            return op(*args, **named)
        for key, x in given.items():
            if key not in self.made:
                self.before.setdefault(key, (x, core.content(x)))
        result = op(*args, **named)
        for x in _tensors(result):
            if x.device.type == NAME and core.memory_of(x) not in {**given, **self.before}:
                self.made[core.memory_of(x)] = x
        view = op.is_view or op in (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
        (self.graph.kept if view else self.graph.calls).append((op, args, named, result))
        return result


@contextlib.contextmanager
def capture(graph: Graph, pool=None, stream=None, **options):
    """As `torch.cuda.graph`, which after an error stays on its stream, and on its memory."""
    if pool and pool in lost:
        raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
    recording = _Recording(graph, core.current() if stream is None else stream.device)
    streams.append(stream)
    core.capturing(True)
    try:
        with recording:
            yield
    except RuntimeError:
        lost.add(pool)
        raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904
    finally:
        core.capturing(False)
        for x, content in recording.before.values():
            core.fill(x, content)
        for x in recording.made.values():
            core.forget(x)  # nothing has computed it yet
    streams.pop()
    if not graph.calls:
        warnings.warn("The CUDA Graph is empty.", stacklevel=2)


def _tensors(x) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, dict):
        x = list(x.values())
    return [y for part in x for y in _tensors(part)] if isinstance(x, list | tuple) else []
