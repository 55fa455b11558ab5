#!/usr/bin/env python3
"""Requests made from /openapi.json, by schemathesis (`pip install schemathesis==4.32.5`), against the built server.

    tests/openapi.py --binary target/release/verbatim [-- more options of `schemathesis run`]

None may be answered with a 5xx but 501 and 503, which the document names, nor with a status, a media type, a header or a
body that it does not describe. The key is an owner's, so that no route is closed. Ends with what schemathesis ends with.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benches"))
from door import make_key, serving  # noqa: E402

CHECKS = ",".join([
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
])
CONFIGURATION = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501, 503]

[parameters]
# The organisation of the key.
"path.project_id" = "{project}"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to try")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--examples", type=int, default=50, help="for each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("more", nargs="*", help="options of `schemathesis run`")
    options = parser.parse_args()
    # Nothing is sent to machines that happen to be named: what is looked up is refused or not found.
    settings = {"VERBATIM_LOG__LEVEL": "warn"}
    with tempfile.TemporaryDirectory(prefix="verbatim-openapi-") as folder, \
            serving(options.binary, "--model", options.model, settings=settings, state=Path(folder) / "state") as served:
        key = make_key(options.binary, Path(folder) / "state", scopes="owner")
        configuration = Path(folder) / "schemathesis.toml"
        asked = urllib.request.Request(f"{served.url}/v1/projects", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked) as answer:
            project = json.load(answer)["projects"][0]["project_id"]
        configuration.write_text(CONFIGURATION.replace("{project}", project))
        command = [
            "schemathesis", "--config-file", str(configuration), "run", f"{served.url}/openapi.json",
            "--header", f"Authorization: Bearer {key}", "--checks", CHECKS,
            "--max-examples", str(options.examples), "--seed", str(options.seed), "--request-timeout", "300",
            "--continue-on-failure", *options.more,
        ]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        result = subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}).returncode
        if served.process.poll() is not None:
            print("the server is gone", file=sys.stderr)
            return 1
        return result


if __name__ == "__main__":
    sys.exit(main())
