"""Puts the bytecode of rlrun.pyz's modules beside their sources in a copy of it, for the Python that runs this.

`PYTHON -W error quicken.py PYZ TARGET`. TARGET's sources are PYZ's; another version of Python does not take the bytecode and
compiles them. No module may make its compiler warn. Runs under every Python from 3.6 on.
"""
import importlib.util
import marshal
import os
import shutil
import sys
import time
import zipfile


def main(pyz: str, target: str) -> None:
    new = shutil.copy(pyz, target + ".new")
    with zipfile.ZipFile(new, "a") as archive:
        for info in archive.infolist():
            if not info.filename.startswith("rlrun/") or not info.filename.endswith(".py"):
                continue
            source = archive.read(info)
            code = compile(source, "%s/%s" % (target, info.filename), "exec", dont_inherit=True)
            if sys.version_info >= (3, 7):  # PEP 552, not to be compared with the source
                head = b"\1\0\0\0" + importlib.util.source_hash(source)
            else:
                made = int(time.mktime(info.date_time + (0, 0, -1)))
                head = made.to_bytes(4, "little") + len(source).to_bytes(4, "little")
            archive.writestr(info.filename + "c", importlib.util.MAGIC_NUMBER + head + marshal.dumps(code))
    os.replace(new, target)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
