"""The obstore module that this process may use, also after a fork.

obstore keeps one runtime of threads and one epoll instance in static variables. A forked child inherits the variables
but not the threads, and shares the epoll instance with its parent: using it there hangs the child and can crash the
parent. So a child whose ancestor has used obstore loads the library a second time, from a copy in memory, since the
loader gives fresh static variables to another file only.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import threading
from types import ModuleType

__all__ = ["client_module"]

_NAME = "obstore"
_LIBRARY = "obstore._obstore"

_lock = threading.Lock()
_module: ModuleType | None = None
_process = -1
_library_file = ""


def client_module() -> ModuleType:
    """Returns obstore, loaded anew if it belongs to another process."""
    global _module, _process, _library_file
    with _lock:
        if _module is None or _process != os.getpid():
            if _module is not None:
                _load_library_again()
            import obstore
            import obstore.store

            _library_file = _library_file or obstore._obstore.__file__
            _module, _process = obstore, os.getpid()
        return _module


def _load_library_again() -> None:
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]
    copy = os.memfd_create(_NAME)
    try:
        with open(_library_file, "rb") as original:
            size = os.fstat(original.fileno()).st_size
            while os.sendfile(copy, original.fileno(), None, size):
                pass
        # The loader compares names before files, and a child of this child would get the same descriptor number.
        path = f"/proc/{os.getpid()}/fd/{copy}"
        loader = importlib.machinery.ExtensionFileLoader(_LIBRARY, path)
        specification = importlib.util.spec_from_file_location(_LIBRARY, path, loader=loader)
        assert specification is not None
        library = importlib.util.module_from_spec(specification)
        loader.exec_module(library)
        sys.modules[_LIBRARY] = library
    finally:
        os.close(copy)


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()  # Another thread of the parent may have held it.


os.register_at_fork(after_in_child=_renew_lock)
