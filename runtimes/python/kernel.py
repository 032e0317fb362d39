"""kernel.py - the Python kernel of a context: `python3 -I kernel.py`, with the kernel socket on fd
3.

This is only the entry point. Everything else is in the package next to it, which is found by its
own path and not by sys.path, because user code must import the same modules as without cove. A
zygote imports the package once, calls covekernel.prepare() and covekernel.member(fd), forks, and
continues with that session in the child.
"""
import importlib.util
import os
import sys


def load():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "covekernel")
    spec = importlib.util.spec_from_file_location("covekernel", os.path.join(here, "__init__.py"), submodule_search_locations=[here])
    module = importlib.util.module_from_spec(spec)
    sys.modules["covekernel"] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    load().main(3)
