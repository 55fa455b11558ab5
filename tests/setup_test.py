#!/usr/bin/env python3
"""./setup against a package index on the loopback interface that breaks off, lies and goes away."""

import contextlib
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import re
import struct
import sys
import tempfile
import threading
import types
import unittest
import zipfile
from pathlib import Path
from unittest import mock

PATH = Path(__file__).resolve().parents[1] / "setup"
loader = importlib.machinery.SourceFileLoader("setup_program", str(PATH))
setup = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(setup)

FILE = "thing-1.0-py3-none-any.whl"


class Torch(types.ModuleType):
    """As much of it as a checkpoint names."""

    def __init__(self):
        super().__init__("torch")
        self._utils = types.ModuleType("torch._utils")
        for module, name in ((self, "FloatStorage"), (self, "LongStorage"), (self._utils, "_rebuild_tensor_v2")):
            setattr(module, name, type(name, (), {"__module__": module.__name__, "__qualname__": name}))


class Tensor:
    def __init__(self, torch: Torch, kind: str, key: str, offset: int, shape: tuple, strides: tuple):
        self.rebuild = torch._utils._rebuild_tensor_v2
        self.storage = types.SimpleNamespace(reference=("storage", getattr(torch, kind), key, "cpu", 0))
        self.rest = offset, shape, strides, False, {}

    def __reduce__(self):
        return self.rebuild, (self.storage, *self.rest)


class Pickler(pickle.Pickler):
    def persistent_id(self, thing):
        return getattr(thing, "reference", None)


def checkpoint(content, storages: dict) -> bytes:
    """A file as `torch.save` writes it. `content`: from a `Torch`, what is pickled."""
    torch, pickled, file = Torch(), io.BytesIO(), io.BytesIO()
    with mock.patch.dict(sys.modules, {"torch": torch, "torch._utils": torch._utils}):
        Pickler(pickled, 2).dump(content(torch))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickled.getvalue())
        for key, values in storages.items():
            archive.writestr(f"model/data/{key}", values)
    return file.getvalue()


def state_dict(torch: Torch) -> dict:
    return {"format": 1, "state_dict": {
        "second": Tensor(torch, "FloatStorage", "0", 1, (2, 2), (2, 1)),
        "first": Tensor(torch, "FloatStorage", "1", 0, (), ()),
        "batches": Tensor(torch, "LongStorage", "2", 0, (), ()),
    }}


STORAGES = {"0": struct.pack("<5f", 0, 1, 2, 3, 4), "1": struct.pack("<f", 0.5), "2": struct.pack("<q", 7)}


def wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("thing/model.1", b"first " * 50_000)
        archive.writestr("thing/model.2", b"second")
        program = zipfile.ZipInfo("thing/bin/program")
        program.external_attr = 0o755 << 16
        archive.writestr(program, b"#!")
        archive.writestr("thing/weights.pt", checkpoint(state_dict, STORAGES))
    return content.getvalue()


class Index(http.server.BaseHTTPRequestHandler):
    """A package index with one file. `cuts`: after how many bytes the next answers break off."""

    content, cuts, log = b"", [], []

    def do_GET(self):
        self.log.append((self.path, self.headers.get("Range")))
        if self.path == "/simple/thing/":
            self.answer(200, f'<a href="../../files/{FILE}#sha256=0">{FILE}</a>'.encode())
        elif self.path == f"/files/{FILE}":
            start = int(re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-"))[1])
            if start >= len(self.content):
                self.answer(416, b"")
            else:
                self.answer(206 if start else 200, self.content[start:], self.cuts.pop(0) if self.cuts else None)
        else:
            self.answer(404, b"")

    def answer(self, status: int, body: bytes, cut=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])

    def log_message(self, *_):
        pass


class SetupTest(unittest.TestCase):
    def setUp(self):
        Index.content, Index.cuts, Index.log = wheel(), [], []
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        self.addCleanup(server.server_close)
        self.port = server.server_port
        self.addCleanup(server.shutdown)
        self.cache = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(setup, "CACHE", self.cache))
        self.enterContext(mock.patch.object(setup.time, "sleep"))
        self.enterContext(mock.patch.dict("os.environ", PIP_INDEX_URL=f"http://127.0.0.1:{server.server_port}/simple"))
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.package = setup.Package("thing", FILE, hashlib.sha256(Index.content).hexdigest())

    def fetched(self):
        return [asked for path, asked in Index.log if path.startswith("/files/")]

    def test_a_broken_download_goes_on_where_it_stopped(self):
        Index.cuts = [100_000, 50_000]
        path = setup.download(setup.Index(), self.package)
        self.assertEqual(path.read_bytes(), Index.content)
        self.assertEqual(self.fetched(), [None, "bytes=100000-", "bytes=150000-"])

    def test_a_download_that_was_whole_is_not_asked_for_again(self):
        (self.cache / "downloads").mkdir()
        (self.cache / "downloads" / f"{FILE}.part").write_bytes(Index.content)
        setup.download(setup.Index(), self.package)
        self.assertEqual(self.fetched(), [f"bytes={len(Index.content)}-"])

    def test_bytes_of_another_file_are_thrown_away(self):
        (self.cache / "downloads").mkdir()
        (self.cache / "downloads" / f"{FILE}.part").write_bytes(b"x" * 1000)
        path = setup.download(setup.Index(), self.package)
        self.assertEqual(path.read_bytes(), Index.content)

    def test_a_file_with_another_sum_is_refused(self):
        Index.content = b"something else"
        with self.assertRaisesRegex(setup.Failure, "not the file that ./setup pins"):
            setup.download(setup.Index(), self.package)
        self.assertEqual(list((self.cache / "downloads").iterdir()), [])

    def test_what_the_index_lacks_is_named(self):
        with self.assertRaisesRegex(setup.Failure, "could not be downloaded from http://127.0.0.1"):
            setup.download(setup.Index(), self.package._replace(project="other"))
        with self.assertRaisesRegex(setup.Failure, "thing-2.0.whl is not at"):
            setup.download(setup.Index(), self.package._replace(file="thing-2.0.whl"))

    def test_what_is_npm_s_is_asked_of_its_registry(self):
        npm = f"http://127.0.0.1:{self.port}/npm"
        package = self.package._replace(registry="npm")
        with mock.patch.dict("os.environ", npm_config_registry=npm):
            self.assertEqual(setup.Index().locate(package), f"{npm}/thing/-/{FILE}")
            with self.assertRaisesRegex(setup.Failure, "npm's registry"):
                setup.download(setup.Index(), package)

    def test_what_a_part_needs_is_there(self):
        known = setup.steps()
        for name, step in known.items():
            self.assertLessEqual(set(step.needs), set(known), name)

    def test_a_part_is_laid_out_once(self):
        members = [(self.package, "thing/model.1", "model"), (self.package, "thing/model.2", "model"),
                   (self.package, "thing/bin/", "bin")]
        part = setup.Part("part", members, texts={"note": "as written"})
        step = setup.Step(part.folder, setup.digest(*part), False, lambda folder: setup.unpack(part, folder))
        self.assertFalse(step.done())
        step.run()
        self.assertTrue(step.done())
        folder = self.cache / "part"
        self.assertEqual((folder / "model").read_bytes(), b"first " * 50_000 + b"second")
        self.assertEqual((folder / "note").read_text(), "as written")
        self.assertTrue((folder / "bin/program").stat().st_mode & 0o100)
        self.assertEqual({path.name for path in self.cache.iterdir()}, {"downloads", "part"})
        self.assertEqual(list((self.cache / "downloads").iterdir()), [])
        self.assertFalse(step._replace(digest="another").done())

    def test_a_checkpoint_is_converted_to_safetensors(self):
        for name in ("a", "b"):
            part = setup.Part(name, [(self.package, "thing/weights.pt", "w.pt")], safetensors={"w.safetensors": "w.pt"})
            setup.unpack(part, self.cache / name)
        self.assertEqual([path.name for path in (self.cache / "a").iterdir()], ["w.safetensors"])
        content = (self.cache / "a/w.safetensors").read_bytes()
        self.assertEqual(content, (self.cache / "b/w.safetensors").read_bytes())
        size, = struct.unpack_from("<Q", content)
        self.assertEqual(size % 8, 0)
        self.assertEqual(json.loads(content[8:8 + size]), {
            "first": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
            "second": {"dtype": "F32", "shape": [2, 2], "data_offsets": [4, 20]}})
        self.assertEqual(struct.unpack_from("<5f", content, 8 + size), (0.5, 1, 2, 3, 4))

    def test_a_checkpoint_runs_no_code(self):
        class Attack:
            def __reduce__(self):
                return os.mkdir, (str(path.with_name("made")),)

        path = self.cache / "weights.pt"
        path.write_bytes(checkpoint(lambda torch: {"first": Attack()}, {}))
        with self.assertRaisesRegex(pickle.UnpicklingError, "mkdir has no place"):
            setup.torch_checkpoint.read(path)
        self.assertEqual(list(self.cache.iterdir()), [path])

    def test_a_checkpoint_that_is_cut_off_or_turned_is_refused(self):
        path = self.cache / "weights.pt"
        path.write_bytes(checkpoint(state_dict, STORAGES | {"0": struct.pack("<4f", 0, 1, 2, 3)}))
        with self.assertRaisesRegex(pickle.UnpicklingError, "cut off"):
            setup.torch_checkpoint.read(path)
        turned = checkpoint(lambda torch: {"t": Tensor(torch, "FloatStorage", "0", 0, (2, 2), (1, 2))}, STORAGES)
        path.write_bytes(turned)
        with self.assertRaisesRegex(pickle.UnpicklingError, "order of C"):
            setup.torch_checkpoint.read(path)

    def test_a_failed_part_leaves_what_was_there(self):
        (self.cache / "part").mkdir()
        (self.cache / "part/old").touch()
        part = setup.Part("part", [(self.package, "thing/model.2", "model")], sha256={"model": "0" * 64})
        step = setup.Step(part.folder, setup.digest(*part), False, lambda folder: setup.unpack(part, folder))
        with self.assertRaisesRegex(setup.Failure, "does not have the sum"):
            step.run()
        self.assertTrue((self.cache / "part/old").exists())

    def test_the_table_is_whole(self):
        for name, part in setup.parts().items():
            self.assertTrue(part.members, name)
            for package, _, path in part.members:
                self.assertRegex(package.sha256, "^[0-9a-f]{64}$")
                self.assertFalse(Path(path).is_absolute() or ".." in Path(path).parts, path)
            self.assertLessEqual(set(part.safetensors.values()), {path for _, _, path in part.members}, name)
            self.assertLessEqual(set(part.safetensors), set(part.sha256), name)


if __name__ == "__main__":
    unittest.main()
