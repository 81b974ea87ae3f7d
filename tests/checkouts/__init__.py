"""Toy checkouts and fake programs for the tests. Owns: copying the template tree, scripts that stand in for programs.

A fake program is a real file first on PATH; nothing here patches Python. Starts nothing but git.
"""
import os
import shutil
import stat
import subprocess

TEMPLATE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lego")

PRIME_TEMPLATE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prime")

# What a run of the template in its own place would leave behind; and no folder with a dot, a linter's cache.
_LEFTOVERS = ("__pycache__", "logs", "trials", "harbor_trials", "checkpoints", "results")

_GIT_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "Toy", "GIT_AUTHOR_EMAIL": "toy@example.invalid", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_NAME": "Toy", "GIT_COMMITTER_EMAIL": "toy@example.invalid",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
}


def list_files():
    """The template's files, as sorted paths relative to TEMPLATE_DIR."""
    found = []
    for folder, folders, names in os.walk(TEMPLATE_DIR):
        folders[:] = [name for name in folders if name not in _LEFTOVERS and not name.startswith(".")]
        found.extend(os.path.relpath(os.path.join(folder, name), TEMPLATE_DIR) for name in names)
    return sorted(found)


def build_checkout(target_dir, git=False):
    """Copies the template to `target_dir`, run bits included; with `git`, commits it. Returns the absolute path."""
    root = os.path.abspath(str(target_dir))
    for path in list_files():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(TEMPLATE_DIR, path), target)
    if git:
        _commit(root)
    return root


def add_config(root, kind, name, text):
    """Writes scripts/<kind>/configs/<name>.env with these bytes or this text. Returns its path."""
    file_name = name if name.endswith(".env") else name + ".env"
    path = os.path.join(str(root), "scripts", kind, "configs", file_name)
    with open(path, "wb") as out:
        out.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def list_prime_files():
    """The files of the prime-rl template, its .venv among them, as sorted paths relative to PRIME_TEMPLATE_DIR."""
    found = []
    for folder, folders, names in os.walk(PRIME_TEMPLATE_DIR):
        folders[:] = [name for name in folders if name not in ("__pycache__", "outputs")
                      and not name.endswith("_cache")]
        found.extend(os.path.relpath(os.path.join(folder, name), PRIME_TEMPLATE_DIR) for name in names)
    return sorted(found)


def build_prime_checkout(path):
    """Copies the prime-rl template to `path`, run bits included. Returns the absolute path."""
    root = os.path.abspath(str(path))
    for name in list_prime_files():
        target = os.path.join(root, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(PRIME_TEMPLATE_DIR, name), target)
    return root


def add_prime_config(root, name, text):
    """Writes configs/debug/<name> (.toml where it has no ending) with these bytes or this text. Returns its path."""
    path = os.path.join(str(root), "configs", "debug", name if os.path.splitext(name)[1] else name + ".toml")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def write_fake_program(folder, name, script_text):
    """Writes an executable script; without a first line of its own it gets bash's. Returns its path."""
    folder = str(folder)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if not script_text.startswith("#!"):
        script_text = "#!/usr/bin/env bash\n" + script_text
    with open(path, "wb") as out:
        out.write(script_text.encode("utf-8"))
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def write_nvidia_smi(folder, gpus=(), holders=(), exit_code=0, extra_stdout=""):
    """A fake nvidia-smi for GPUs and their holders, which are dicts.

    A GPU has index, uuid, bus_id, name, used, total, util, ecc; a holder has uuid, pid, used, name. A missing key is
    answered with [N/A]. A number of MiB or percent gets its unit unless nounits is asked for; a string stays as it is.
    """
    return write_fake_program(folder, "nvidia-smi", _NVIDIA_SMI % {
        "extra": _quote(extra_stdout),
        "exit_code": exit_code,
        "gpu_cells": _list_cells(gpus, _complete_gpu),
        "gpu_rows": len(gpus),
        "app_cells": _list_cells(holders, lambda holder, _: dict(holder, bus_id=_find_bus_id(gpus, holder))),
        "app_rows": len(holders),
        "listing": _quote("".join("GPU %s: %s (UUID: %s)\n" % (
            gpu.get("index", number), gpu.get("name", "Toy GPU"), gpu.get("uuid", "GPU-toy-%d" % number))
            for number, gpu in enumerate(gpus))),
    })


def _commit(root):
    environment = dict(os.environ, **_GIT_ENVIRONMENT)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # set where a test runs inside a git hook
        environment.pop(name, None)
    settings = ["-c", "core.autocrlf=false", "-c", "core.hooksPath=" + os.devnull, "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "The toy checkout"]):
        subprocess.check_call(["git"] + settings + words, cwd=root, env=environment, stdin=subprocess.DEVNULL)


def _complete_gpu(gpu, number):
    cells = dict(gpu)
    cells.setdefault("index", number)
    cells.setdefault("uuid", "GPU-toy-%d" % number)
    cells.setdefault("name", "Toy GPU")
    if isinstance(cells.get("total"), int) and isinstance(cells.get("used"), int):
        cells.setdefault("free", cells["total"] - cells["used"])
    return cells


def _find_bus_id(gpus, holder):
    return next((gpu["bus_id"] for gpu in gpus if gpu.get("uuid") == holder.get("uuid") and "bus_id" in gpu), "[N/A]")


def _list_cells(rows, complete):
    """One line of a bash `case` for each cell: 0:used) cell 61000 MiB ;;"""
    lines = []
    for number, row in enumerate(rows):
        for key, value in sorted(complete(row, number).items()):
            unit = ""
            if not isinstance(value, str):
                unit = {"used": "MiB", "total": "MiB", "free": "MiB", "util": "%"}.get(key, "")
            lines.append("        %d:%s) cell %s %s ;;" % (number, key, _quote(str(value)), _quote(unit)))
    return "\n".join(lines)


def _quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


_NVIDIA_SMI = r"""#!/usr/bin/env bash
# A fake nvidia-smi: answers the queries from the cells below.
printf '%%s' %(extra)s
query="" fields="" format=""
for word in "$@"; do
    case "$word" in
        --query-gpu=*) query=gpu fields=${word#*=} ;;
        --query-compute-apps=*) query=app fields=${word#*=} ;;
        --format=*) format=${word#*=} ;;
        -L|--list-gpus) printf '%%s' %(listing)s; exit %(exit_code)s ;;
    esac
done

cell() {
    value=$1
    case "$2:$format" in
        :*|*nounits*) ;;
        *) value="$1 $2" ;;
    esac
}

read_gpu_cell() {
    case "$1" in
%(gpu_cells)s
        *) cell '[N/A]' '' ;;
    esac
}

read_app_cell() {
    case "$1" in
%(app_cells)s
        *) cell '[N/A]' '' ;;
    esac
}

# The fields that nvidia-smi knows, by the short name they have in the cells.
shorten() {
    case "$1" in
        gpu_uuid) short=uuid ;;
        pci.bus_id|gpu_bus_id) short=bus_id ;;
        gpu_name|process_name) short=name ;;
        memory.used|used_memory|used_gpu_memory) short=used ;;
        memory.total) short=total ;;
        memory.free) short=free ;;
        utilization.gpu) short=util ;;
        ecc.errors.uncorrected.*.total) short=ecc ;;
        *) short=$1 ;;
    esac
}

print_rows() {
    local number field line
    for ((number = 0; number < $1; number++)); do
        line=""
        for field in ${fields//,/ }; do
            shorten "$field"
            "read_${query}_cell" "$number:$short"
            line="$line${line:+, }$value"
        done
        printf '%%s\n' "$line"
    done
}

case "$format" in
    *noheader*) ;;
    *) [ -z "$query" ] || printf '%%s\n' "${fields//,/, }" ;;
esac
case "$query" in
    gpu) print_rows %(gpu_rows)s ;;
    app) print_rows %(app_rows)s ;;
    *) echo "NVIDIA-SMI (toy)" ;;
esac
exit %(exit_code)s
"""
