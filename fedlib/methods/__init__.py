"""All methods by name, which is that of their file; those whose class has a `look`.

A method is imported when it is loaded, so a run's code digest contains no other method. A method
outside this package is named by its file, such as "mine/fedper.py".
"""

import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from fedlib.errors import ConfigError, nearest, of_file
from fedlib.run_spec import class_of_file, is_file, methods

METHODS = tuple(methods())
ROOT = Path(__file__).resolve().parents[2]  # names of files are relative to this folder


def load(name: str) -> type:
    """The class of method `name`: from `fedlib/methods/<name>.py`, or from a file of that name.

    Raises:
      ConfigError: for an unknown name, or a file that contains no method or cannot be imported.
    """
    if is_file(name):
        return _from_file(name)
    if name not in METHODS:
        raise ConfigError(f"no method {name!r}; {nearest(name, METHODS)}")
    module = import_module(f"fedlib.methods.{name}")
    classes = (value for value in vars(module).values() if isinstance(value, type))
    return next(x for x in classes if x.__module__ == module.__name__ and "look" in vars(x))


class _Reader(SourceFileLoader):
    """Reads a file's text each time: bytecode may be of another one of the same second and size."""

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(name: str) -> type:
    """The method class in a file of the user, which may import fedlib and installed packages."""
    from fedlib.methods.base import Method

    module_name = f"fedlib_own_{Path(name).stem}"
    reader = _Reader(module_name, str(ROOT / name))
    module = module_from_spec(spec_from_loader(module_name, reader))
    sys.modules[module_name] = module  # where dataclasses look for it
    try:
        reader.exec_module(module)
    except Exception as error:  # a user's file may raise anything
        raise of_file(error, str(ROOT / name), name) from error
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    if not issubclass(found := getattr(module, class_of_file(name, classes)), Method):
        raise ConfigError(
            f"{name}: {found.__name__} is not derived from fedlib.methods.base.Method"
        )
    return found
