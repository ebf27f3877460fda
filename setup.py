"""The C extension; everything else is in pyproject.toml."""

import os
from glob import glob

from setuptools import Extension, setup

flags = ["-std=gnu11", "-O2", "-g", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing"]
flags += ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
if os.environ.get("CUPTIMEM_WERROR"):
    flags.append("-Werror")

sources = sorted(
    path for path in glob("csrc/**/*.c", recursive=True) if "/simulator/" not in path.replace(os.sep, "/")
)

setup(
    ext_modules=[
        Extension(
            "cuptimem._core",
            sources,
            depends=glob("csrc/**/*.h", recursive=True),
            extra_compile_args=flags,
            libraries=["dl", "pthread", "rt"],
        )
    ]
)
