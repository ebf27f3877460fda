"""The C extension and the .pth file; everything else is in pyproject.toml."""

import os
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

PTH = "cuptimem.pth"  # what lets CUPTIMEM=1 and `cuptimem run` start a recording before the program's first line

flags = ["-std=gnu11", "-O2", "-g", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing"]
flags += ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
if os.environ.get("CUPTIMEM_WERROR"):
    flags.append("-Werror")

sources = sorted(path for path in glob("csrc/**/*.c", recursive=True) if "/simulator/" not in path.replace(os.sep, "/"))


class BuildWithPth(build_py):
    """Puts the .pth into site-packages, whichever way cuptimem is installed."""

    def run(self):
        super().run()
        if self.editable_mode:
            # No package file is copied then, but a data file is, relative to the environment's root.
            site_packages = sysconfig.get_path("purelib", vars={"base": "", "platbase": ""}).lstrip("/")
            self.distribution.data_files = [(site_packages, [PTH])]
            self.run_command("install_data")
        else:
            # Beside the package: a wheel's root is site-packages.
            self.copy_file(PTH, os.path.join(self.build_lib, PTH), preserve_mode=False)

    def get_outputs(self, include_bytecode=1):
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, PTH)]


setup(
    # Elsewhere than on Linux there is nothing to hook, but a pickled report can be read.
    ext_modules=[
        Extension(
            "cuptimem._core",
            sources,
            depends=glob("csrc/**/*.h", recursive=True),
            extra_compile_args=flags,
            libraries=["dl", "pthread", "rt"],
        )
    ]
    if sys.platform == "linux"
    else [],
    cmdclass={"build_py": BuildWithPth},
)
