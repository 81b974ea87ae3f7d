"""prime-rl: what lies in a trainer checkpoint, told from its index alone. Reads, and runs nothing of what it reads.

A checkpoint is a folder of shards (`__0_0.distcp`) and an index, `.metadata`, which is written last and renamed into place:
without it the save did not end. The index is a pickle; here it is read with stand-ins for all that it names, so that
nothing in it can act. Source: torch.distributed.checkpoint (filesystem.py, metadata.py), prime_rl/trainer/ckpt.py.
"""
import io
import os
import pickle
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

_INDEX = ".metadata"
_TEMPORARY = ".metadata.tmp"
_MAX_INDEX_BYTES = 32 << 20
# AppState.state_dict: {"app": {"model": …, "optimizers": …}}, flattened with dots
_WEIGHTS = "app.model."
_HEAD = "lm_head.weight"  # left out of an export where it is tied to the embeddings
# What the converters look for (check_not_lora), and what they leave at two bytes (SKIP_SUBSTRINGS)
_LORA = ("lora_A", "lora_B", ".base_layer.")
_KEPT = ("norm", "embed", "lm_head", "visual.", "router")


class Shards(NamedTuple):
    """What lies in a checkpoint, and what its index tells. Counts are None where the index can't be read."""

    folder: str
    faults: Tuple[str, ...]  # why it is not complete, in words
    size_bytes: int  # of all shards, optimizer included
    weights: Optional[int]  # how many numbers the model has
    head: int  # of these, in its output layer
    kept: int  # of these, in tensors that are not quantized
    lora: str  # the name of an adapter's tensor, "" where there is none
    unread: str  # why the index can't be read


def find_folder(step_dir: str) -> str:
    """Where a step's shards are: step_N/trainer, or step_N itself, as the converters look for them."""
    inner = os.path.join(step_dir, "trainer")
    return inner if os.path.isdir(inner) or not os.path.exists(os.path.join(step_dir, _INDEX)) else step_dir


def read_shards(step_dir: str) -> Shards:
    """Looks at the checkpoint of one step; what is missing or cut short is among its `faults`."""
    folder = find_folder(step_dir)
    try:
        names = os.listdir(folder)
    except OSError as error:
        return Shards(folder, ("%s can't be read: %s" % (folder, os.strerror(error.errno or 0)),), 0, None, 0, 0, "", "")
    sizes = {name: _read_size(os.path.join(folder, name)) for name in names if name.endswith(".distcp")}
    faults = [] if _INDEX in names else ["%s has no %s: the save has not ended" % (folder, _INDEX)]
    faults += ["%s: a save into this folder is under way, or was cut off" % _TEMPORARY] if _TEMPORARY in names else []
    faults += [] if sizes else ["%s holds no shard (*.distcp)" % folder]
    total = sum(sizes.values())
    if _INDEX not in names:
        return Shards(folder, tuple(faults), total, None, 0, 0, "", "")
    index, unread = _read_index(os.path.join(folder, _INDEX))
    ends = _list_ends(index)
    faults += ["%s is missing" % name for name in sorted(ends) if not os.path.exists(os.path.join(folder, name))]
    faults += ["%s is cut short: %d bytes of at least %d" % (name, sizes[name], ends[name]) for name in sorted(ends)
               if name in sizes and sizes[name] < ends[name]]
    counts = _count_numbers(index)
    lora = next((name for name in sorted(_names(index)) if any(word in name for word in _LORA)), "")
    own = {name: number for name, number in counts.items() if name.startswith(_WEIGHTS)}
    return Shards(folder, tuple(faults), total, sum(own.values()) if own else None,
                  sum(number for name, number in own.items() if name.endswith(_HEAD)),
                  sum(number for name, number in own.items() if any(word in name for word in _KEPT)), lora, unread)


def _read_size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class _StandIn:
    """Takes the place of every class and function that a pickle names; keeps what it is given, and does nothing."""

    def __new__(cls, *given: Any) -> "_StandIn":
        made = object.__new__(cls)
        made.given = given
        made.state = {}
        return made

    def __init__(self, *given: Any) -> None:
        self.given: Tuple[Any, ...]
        self.state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, name: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """What a list's stand-in is filled by."""

    def extend(self, values: Any) -> None:
        """The same, many at once."""


class _Reader(pickle.Unpickler):  # pickle asks for a class to change what it looks up
    def find_class(self, module: str, name: str) -> Any:
        return _StandIn

    def persistent_load(self, word: Any) -> Any:
        raise pickle.UnpicklingError("it points outside itself")


def _read_index(path: str) -> Tuple[Dict[str, Any], str]:
    """(the fields of the index, "") or ({}, why it can't be read)."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_INDEX_BYTES + 1)
        if len(data) > _MAX_INDEX_BYTES:
            return {}, "%s has more than %d MiB" % (_INDEX, _MAX_INDEX_BYTES >> 20)
        made = _Reader(io.BytesIO(data)).load()
    except Exception as error:  # whatever a broken pickle may raise
        return {}, "%s can't be read: %s" % (_INDEX, error)
    fields = _fields(made)
    return (fields, "") if isinstance(fields.get("state_dict_metadata"), dict) else ({}, "%s is of another kind" % _INDEX)


def _fields(made: Any) -> Dict[str, Any]:
    """What an object of a dataclass was filled with."""
    state = made.state if isinstance(made, _StandIn) else None
    return state if isinstance(state, dict) else {}


def _names(index: Dict[str, Any]) -> List[str]:
    return [name for name in index.get("state_dict_metadata", {}) if isinstance(name, str)]


def _count_numbers(index: Dict[str, Any]) -> Dict[str, int]:
    """How many numbers each tensor has, by its name."""
    counts = {}
    for name in _names(index):
        size = _fields(index["state_dict_metadata"][name]).get("size")
        shape = size.given[0] if isinstance(size, _StandIn) and size.given else size
        if isinstance(shape, (tuple, list)) and all(isinstance(one, int) for one in shape):
            counts[name] = 1
            for one in shape:
                counts[name] *= one
    return counts


def _list_ends(index: Dict[str, Any]) -> Dict[str, int]:
    """How long each shard must be at least: where the last of its pieces ends."""
    ends: Dict[str, int] = {}
    stored = index.get("storage_data")
    for piece in (stored.values() if isinstance(stored, dict) else ()):
        told = _fields(piece)
        name, offset, length = told.get("relative_path"), told.get("offset"), told.get("length")
        if isinstance(name, str) and "/" not in name and isinstance(offset, int) and isinstance(length, int):
            ends[name] = max(ends.get(name, 0), offset + length)
    return ends
