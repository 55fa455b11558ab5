"""Reads the tensors of a PyTorch checkpoint without PyTorch, and writes them as safetensors.

A checkpoint is a zip archive: `data.pkl` describes the tensors, `data/KEY` holds the bytes of each storage
(https://github.com/pytorch/pytorch/blob/v2.11.0/torch/serialization.py). A pickle can run any code; this reader
admits dictionaries, numbers, text and tensors, and refuses everything else.
"""

import collections
import io
import json
import math
import pickle
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

# Kinds of storage: the name in safetensors, and bytes per element.
KINDS = {"FloatStorage": ("F32", 4), "LongStorage": ("I64", 8)}


class Tensor(NamedTuple):
    """A tensor in the order of C."""

    kind: str
    shape: tuple
    data: bytes


class Unpickler(pickle.Unpickler):
    """Builds what `torch.save` wrote of a state dict."""

    def __init__(self, archive: zipfile.ZipFile, root: str):
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self.archive, self.root = archive, root

    def find_class(self, module: str, name: str):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self.tensor
        if module == "torch" and name in KINDS:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a state dict")

    def persistent_load(self, reference):
        """The kind and the key of a storage; its bytes are read when a tensor needs them."""
        _, kind, key, _, _ = reference
        return kind, key

    def tensor(self, storage, offset: int, shape: tuple, strides: tuple, *_) -> Tensor:
        kind, size = KINDS[storage[0]]
        dense = tuple(math.prod(shape[axis + 1:]) for axis in range(len(shape)))
        if any(length > 1 and found != wanted for length, found, wanted in zip(shape, strides, dense)):
            raise pickle.UnpicklingError("a tensor is not in the order of C")
        data = self.archive.read(f"{self.root}data/{storage[1]}")[offset * size:(offset + math.prod(shape)) * size]
        if len(data) != math.prod(shape) * size:
            raise pickle.UnpicklingError("a tensor is cut off")
        return Tensor(kind, tuple(shape), data)


def read(path: Path) -> dict:
    """The tensors of a checkpoint, by name: of its `state_dict`, where it has one beside other things."""
    with zipfile.ZipFile(path) as archive:
        root = next(name for name in archive.namelist() if name.endswith("/data.pkl")).removesuffix("data.pkl")
        if f"{root}byteorder" in archive.namelist() and archive.read(f"{root}byteorder") != b"little":
            raise pickle.UnpicklingError("the checkpoint is not little-endian")
        found = Unpickler(archive, root).load()
    found = found.get("state_dict", found)
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}


def write_safetensors(tensors: dict, path: Path) -> None:
    """A safetensors file (https://github.com/huggingface/safetensors#format), the same to the byte for the same tensors."""
    header, at = {}, 0
    for name, tensor in sorted(tensors.items()):
        header[name] = {"dtype": tensor.kind, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in sorted(tensors.items()):
            file.write(tensor.data)


def convert(checkpoint: Path, safetensors: Path) -> None:
    """The numbers that inference needs; not the counters of training, which are whole numbers."""
    tensors = {name: tensor for name, tensor in read(checkpoint).items() if tensor.kind == "F32"}
    write_safetensors(tensors, safetensors)
