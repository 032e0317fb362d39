"""overrides.py - the environment variables and the working directory of a single cell: `env` and
`cwd` of its request. They are set before it and restored after it, whatever the cell did to them.
Other variables that the cell sets are kept."""
import os
from posix import chdir, getcwd


def check(request):
    """Why env or cwd of a request cannot be used, or None."""
    env, cwd = request.get("env"), request.get("cwd")
    if env is not None and not (isinstance(env, dict) and all(isinstance(v, str) for v in env.values())):
        return "env is not a map of strings"
    if cwd is not None and not isinstance(cwd, str):
        return "cwd is not a string"
    return None


def apply(env, cwd):
    """Part of the cell: a directory that does not exist is an exception of the cell."""
    if cwd:
        chdir(cwd)
    if env:
        os.environ.update(env)


def save(env, cwd, default):
    """Returns the arguments of restore()."""
    try:
        former = getcwd() if cwd else None
    except OSError:
        former = default  # the directory was removed
    return {name: os.environ.get(name) for name in env or ()}, former


def restore(env, cwd):
    """The cell may have replaced or broken os.environ."""
    for name, value in env.items():
        try:
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        except Exception:
            pass
    if cwd:
        try:
            chdir(cwd)
        except OSError:
            pass
