"""The C extension, the simulated device and the startup files; everything else is in pyproject.toml."""

import os
import runpy
import subprocess
import sys
import sysconfig
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

# What lets CUPTIMEM=1 and `cuptimem run` start a recording before the program's first line. Before 3.15 Python knows
# the first only; from then on it skips the first for the second (PEP 829), and 3.18 ignores the first in any case.
STARTUP = ("cuptimem.pth", "cuptimem.start")
_OFF = ("", "0", "false", "no", "off")  # as every other variable of ours
WITH_STARTUP = os.environ.get("CUPTIMEM_NO_PTH", "").lower() in _OFF  # without either, only cuptimem.profile records

if sys.platform == "linux" and sysconfig.get_config_var("Py_GIL_DISABLED"):
    # Else it would build, and record without lines or crash: nothing here was written for threads side by side.
    sys.exit("cuptimem does not support free-threaded Python yet: install it into a Python that has the GIL")

# What compiles C, and the libraries of the simulated device, which are in our wheel.
cudasim = runpy.run_path("cudasim/setup.py")


class BuildWithStartup(cudasim["Modules"]):
    """Puts the startup files into site-packages, whichever way cuptimem is installed; and adds the manual page."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.write_manual()
        if not WITH_STARTUP:
            for name in STARTUP:
                Path(self.build_lib, name).unlink(missing_ok=True)  # of an earlier build
        elif self.editable_mode:
            # No package file is copied then, but a data file is, relative to the environment's root.
            site_packages = sysconfig.get_path("purelib", vars={"base": "", "platbase": ""}).lstrip("/")
            self.distribution.data_files = [(site_packages, list(STARTUP))]
            self.run_command("install_data")
        else:
            # Beside the package: a wheel's root is site-packages.
            for name in STARTUP:
                self.copy_file(name, os.path.join(self.build_lib, name), preserve_mode=False)

    def write_manual(self):
        """Asks the command line's own parsers, for which the extension and other packages need not be there.

        -S: an installed cuptimem would lend its extension, and only a build elsewhere would show that one is needed.
        """
        folder = Path(self.get_finalized_command("build").build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / "cuptimem.1"
        command = [sys.executable, "-S", "-m", "cuptimem.cli.manual"]
        with page.open("wb") as file:
            subprocess.run(command, stdout=file, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()})
        self.distribution.data_files = [("share/man/man1", [str(page)])]

    def get_outputs(self, include_bytecode=1):
        outputs = super().get_outputs(include_bytecode)
        if self.editable_mode or not WITH_STARTUP:
            return outputs
        return [*outputs, *(os.path.join(self.build_lib, name) for name in STARTUP)]


setup(
    # Elsewhere than on Linux there is nothing to hook, but a pickled report can be read.
    ext_modules=[
        Extension(
            "cuptimem._core",
            sorted(glob("csrc/**/*.c", recursive=True)),
            depends=glob("csrc/**/*.h", recursive=True),
            extra_compile_args=cudasim["FLAGS"],
            libraries=["dl", "pthread", "rt"],
        ),
        *cudasim["extensions"](),
    ]
    if sys.platform == "linux"
    else [],
    cmdclass={"build_py": BuildWithStartup, "build_ext": cudasim["Build"]},
)
