#!/usr/bin/env python3
"""Autobahn's test suite against a strict WebSocket that echoes every message.

    tests/autobahn/run.py --install               # once: into ~/.cache/verbatim, from the package index
    tests/autobahn/run.py --url ws://127.0.0.1:9001/echo --cases 1 2 3 4 5 6 7 10
    cargo test --test integration autobahn -- --include-ignored    # against the server's own, in all cases

A case passes when it behaves and closes as it must: «non-strict» is not enough. Cases of compression (12 and
13) are left out, since it is never agreed to, and so is 9.9.1, which the suite itself does not run.
"""

import argparse
import asyncio
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITE = "autobahntestsuite==25.10.1"
CACHE = Path(os.environ.get("VERBATIM_CACHE") or Path.home() / ".cache" / "verbatim")
FOLDER = CACHE / "autobahn-25.10.1"


def install() -> None:
    if (FOLDER / "installed").exists():
        return
    venv.create(FOLDER, with_pip=True, clear=True)
    pip = [FOLDER / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--requirement", HERE / "requirements.txt"], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", SUITE], check=True)
    (FOLDER / "installed").touch()


def again_inside() -> None:
    """Goes on with the interpreter that has the suite."""
    python = FOLDER / "bin" / "python"
    if Path(sys.prefix) != FOLDER:
        if not (FOLDER / "installed").exists():
            sys.exit(f"the suite is not there: {Path(__file__).name} --install")
        os.execv(python, [python, *sys.argv])


def octets(text):
    return text.encode("latin-1") if isinstance(text, str) else text


def characters(data):
    return data.decode("latin-1") if isinstance(data, bytes) else data


def protocol():
    """The suite's own client, as its cases expect it, on this version of the library."""
    from autobahn.asyncio.websocket import WebSocketClientProtocol

    class Client(WebSocketClientProtocol):
        def onOpen(self):
            self.connectionWasOpen = True
            self.case.onOpen()

        def onMessage(self, payload, isBinary):
            self.case.onMessage(characters(payload), isBinary)

        def onPong(self, payload):
            self.case.onPong(characters(payload))

        def connection_lost(self, reason):
            super().connection_lost(reason)
            try:
                self.case.onConnectionLost(self.failedByMe)
                self.ended.set_result(None)
            except Exception as error:
                self.ended.set_exception(error)

        def logTxFrame(self, frameHeader, *_):
            self.txFrameStats[frameHeader.opcode] += 1

        # Methods that the cases call.
        def sendFrame(self, opcode, payload=b"", *rest, **named):
            super().sendFrame(opcode, octets(payload), *rest, **named)

        def sendMessage(self, payload, isBinary=False, *rest, **named):
            super().sendMessage(octets(payload), isBinary, *rest, **named)

        def sendPing(self, payload=None):
            super().sendPing(octets(payload))

        def sendPong(self, payload=None):
            super().sendPong(octets(payload))

        def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
            super().sendCloseFrame(code, octets(reasonUtf8), isReply)

        def beginMessage(self, opcode=1):
            super().beginMessage(opcode == 2)

        def sendMessageFrameData(self, payload, sync=False):
            return super().sendMessageFrameData(octets(payload), sync)

        def continueLater(self, delay, function, tag=None):
            self.later(delay, function)

        def killAfter(self, delay):
            self.later(delay, self._fail_connection)

        def closeAfter(self, delay):
            self.later(delay, self.sendClose)

        def later(self, delay, function):
            def run():
                if self.state != self.STATE_CLOSED:
                    function()

            asyncio.get_running_loop().call_later(delay * self.patience, run)

        def enableWirelog(self, _):
            pass

    return Client


async def run_case(options, Case):
    from autobahn.asyncio.websocket import WebSocketClientFactory

    factory = WebSocketClientFactory(options.url)
    factory.setProtocolOptions(failByDrop=False, openHandshakeTimeout=30, closeHandshakeTimeout=30,
                               serverConnectionDropTimeout=30)
    ended = asyncio.get_running_loop().create_future()

    def client():
        made = protocol()()
        made.factory, made.ended, made.patience = factory, ended, options.patience
        made.txFrameStats, made.connectionWasOpen, made.logFrames = Counter(), False, True
        made.case = Case(made)
        client.case = made.case
        return made

    await asyncio.get_running_loop().create_connection(client, factory.host, factory.port)
    await asyncio.wait_for(ended, 300 * options.patience)
    return client.case


async def run(options, Cases, number) -> int:
    chosen = [Case for Case in Cases if any(f"{number(Case)}.".startswith(f"{case}.") for case in options.cases)]
    gate, counts, failed = asyncio.Semaphore(options.parallel), Counter(), []

    async def one(Case):
        async with gate:
            try:
                case = await run_case(options, Case)
                behaviors, why = (case.behavior, case.behaviorClose), f"{case.result} {case.resultClose}"
            except (OSError, asyncio.TimeoutError) as error:
                behaviors, why = ("FAILED", "FAILED"), repr(error)
        counts[behaviors[0]] += 1
        if not set(behaviors) <= {"OK", "INFORMATIONAL"}:
            failed.append(f"{number(Case)}: {behaviors[0]}, closed {behaviors[1]}: {why}")

    await asyncio.gather(*map(one, chosen))
    print(f"{len(chosen)} cases: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    for failure in sorted(failed):
        print(failure)
    return 1 if failed or not chosen else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--cases", nargs="+", default=["1", "2", "3", "4", "5", "6", "7", "9", "10"])
    parser.add_argument("--parallel", type=int, default=4, help="cases at once")
    parser.add_argument("--patience", type=float, default=1.0,
                        help="waits of the suite times this, where the machine is slow")
    options = parser.parse_args()
    if options.install:
        install()
    if not options.url:
        return 0
    again_inside()
    with tempfile.TemporaryDirectory() as folder:
        from convert import convert

        suite = Path(importlib.util.find_spec("autobahntestsuite").submodule_search_locations[0])
        convert(suite, Path(folder))
        sys.path.insert(0, folder)
        cases = importlib.import_module("cases")

        def number(Case) -> str:
            return Case.__name__.removeprefix("Case").replace("_", ".")

        return asyncio.run(run(options, cases.Cases, number))


if __name__ == "__main__":
    sys.exit(main())
