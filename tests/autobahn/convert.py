"""The cases of Autobahn's test suite, which is Python 2 and holds octets in its strings, as Python 3.

Each octet becomes the character of its number (Latin-1), in the source as in what is sent and compared. What
is written is made of the installed package, on the spot: none of it is kept here.
"""

import re
from pathlib import Path

from fissix.refactor import RefactoringTool, get_fixers_from_package

# Cases that don't apply: an endless stream, which needs Twisted's producers, and compression, which this server never
# negotiates.
LEFT_OUT = re.compile(r"case(9_9_1|12_|13_)")
TEXTS = [
    (r"^#.*coding.*$", ""),
    (r"^from (case\w*) import", r"from .\1 import"),
    (r"\bimport binascii\b", "from .octets import binascii"),
    (r"from autobahn\.websocket\.utf8validator import", "from .octets import"),
    (r'\.encode\("utf-8"\)', '.encode("utf-8", "surrogatepass").decode("latin-1")'),
    (r"\(object, Case, ?\)", "(Case,)"),
    (r"\.tostring\(\)", '.tobytes().decode("latin-1")'),
    (r"/ self\.p\.autoFragmentSize", "// self.p.autoFragmentSize"),
    (r"pickle\.dumps\(obj1\) == pickle\.dumps\(obj2\)", "obj1 == obj2"),
]
OCTETS = '''
import binascii as _binascii

from autobahn.websocket import utf8validator as _utf8


class binascii:
    @staticmethod
    def b2a_hex(octets):
        octets = octets.encode("latin-1") if isinstance(octets, str) else octets
        return _binascii.b2a_hex(octets).decode()


class Utf8Validator(_utf8.Utf8Validator):
    def validate(self, octets):
        return super().validate(octets.encode("latin-1"))
'''


def convert(suite: Path, into: Path) -> None:
    """Writes the package `cases` into the folder `into`."""
    tool = RefactoringTool(get_fixers_from_package("fissix.fixes"))
    package = into / "cases"
    package.mkdir(parents=True, exist_ok=True)
    (package / "octets.py").write_text(OCTETS)
    for source in sorted((suite / "case").glob("*.py")):
        if LEFT_OUT.match(source.name):
            continue
        text = source.read_text("latin-1").expandtabs(3)
        if source.name == "__init__.py":
            lines = [line for line in text.splitlines() if not re.search(r"case9_9_1|case1[23]_|Case1[23]_", line)]
            text = "\n".join(lines) + "\n"
        for pattern, replacement in TEXTS:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        text = str(tool.refactor_string(text if text.endswith("\n") else text + "\n", source.name))
        (package / source.name).write_text(text, "utf-8")
