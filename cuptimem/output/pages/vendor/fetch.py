"""Fetches the vendored assets again: python -m cuptimem.output.pages.vendor.fetch [--check].

versions.json names each package of the npm registry with its version, its integrity as npm writes it, and the files
that are kept, unmodified. --check compares them with what is here and writes nothing.
"""

import argparse
import base64
import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
REGISTRY = "https://registry.npmjs.org"


def download(name: str, version: str, integrity: str, registry: str) -> bytes:
    """The package's archive. Raises ValueError where it is not the one whose integrity is known."""
    with urllib.request.urlopen(f"{registry}/{name}/-/{name}-{version}.tgz") as answer:
        archive: bytes = answer.read()
    found = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != integrity:
        raise ValueError(f"{name} {version}: {found}, not {integrity}")
    return archive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--registry", default=REGISTRY)
    options = parser.parse_args()
    differ = []
    for name, package in json.loads((HERE / "versions.json").read_text()).items():
        archive = download(name, package["version"], package["integrity"], options.registry)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for file in package["files"]:
                member = files.extractfile(f"package/{file}")
                content = member.read() if member is not None else b""
                path = HERE / name / Path(file).name
                if not path.is_file() or path.read_bytes() != content:
                    differ.append(str(path))
                    if not options.check:
                        path.parent.mkdir(exist_ok=True)
                        path.write_bytes(content)
    for one in differ:
        print(("differs: " if options.check else "written: ") + one)
    return 1 if options.check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
