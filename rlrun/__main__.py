"""The door: turns away a Python that is too old, shuts out modules that are not the library's, and calls cli.main.

Owns: what must happen before the first import. Must not import anything of rlrun but cli, nor use syntax that
Python 2.7 can't parse. It is also the archive's own `__main__`. os.environ stays as it is: the run inherits the
operator's PYTHONPATH.
"""
import os
import sys

if sys.version_info < (3, 6):
    if sys.stderr:
        sys.stderr.write("rlrun: needs Python 3.6 or newer, and this is %d.%d.%d (%s); start it with another, say: "
                         "/usr/bin/python3 %s\n" % (tuple(sys.version_info[:3]) + (sys.executable, sys.argv[0])))
    sys.exit(5)


def _open_closed_streams():
    # type: () -> None
    """With descriptor 0, 1 or 2 closed (`<&-`), the next file to be opened would become a program's stdin or stdout."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one


def _isolate():
    # type: () -> None
    """Leaves in sys.path what `python3 -I` would, and of that only the library: an old argparse.py on PYTHONPATH or a
    json.py in the working directory must not be ours. `-I` itself can't stand in a first line that starts with env."""
    library = os.path.dirname(os.__file__)
    outside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [library]
    for entry in sys.path:
        folder, name = os.path.split(entry)
        is_extensions = name == "lib-dynload" and entry not in outside
        is_archive = folder == os.path.dirname(library) and name.startswith("python") and name.endswith(".zip")
        if entry != library and (is_extensions or is_archive):
            kept.append(entry)
    if not __package__:  # not `python3 -m rlrun`, where the package is found already
        home = os.path.dirname(__file__)
        is_source = os.path.isfile(os.path.join(home, "cli.py"))  # `python3 rlrun`, in a source checkout
        try:
            home = os.path.abspath(home)  # the working directory may change before the last import
        except OSError:  # it is gone
            pass
        if is_source:
            home = os.path.dirname(home)
        kept.append(home)
    sys.path[:] = kept
    for name, module in list(sys.modules.items()):
        # What a sitecustomize or Python's own start has already taken from elsewhere.
        origin = getattr(module, "__file__", None) or library
        if not origin.startswith(library) and "." not in name and name != "__main__" and (
                os.path.isfile(os.path.join(library, name + ".py")) or os.path.isdir(os.path.join(library, name))):
            del sys.modules[name]


def _run():
    # type: () -> int
    try:
        from rlrun.cli import main
        return main(sys.argv[1:])
    except KeyboardInterrupt:  # before cli could listen for it
        return 130


if __name__ == "__main__":
    _open_closed_streams()
    _isolate()
    sys.exit(_run())
