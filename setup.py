"""The C extension, the simulated device's libraries and the .pth file; everything else is in pyproject.toml."""

import os
import runpy
import sys
import sysconfig
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

PTH = "cuptimem.pth"  # what lets CUPTIMEM=1 and `cuptimem run` start a recording before the program's first line

flags = ["-std=gnu11", "-O2", "-g", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing"]
flags += ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
if os.environ.get("CUPTIMEM_WERROR"):
    flags.append("-Werror")

sources = sorted(path for path in glob("csrc/**/*.c", recursive=True) if "/simulator/" not in path.replace(os.sep, "/"))


# The simulated device: shared libraries beside a package's Python files that nobody imports. They are preloaded into a
# process that runs on it (cuptimem/simulator/__init__.py says which and why), so their file names are SONAMEs.
SIMULATOR = "cuptimem.simulator"
TABLES = "csrc/simulator/tables"
simulator = runpy.run_path("cuptimem/simulator/__init__.py")
ALIASES = {alias.file: alias for alias in simulator["ALIASES"]}
FILES = {file.replace(".", "_").replace("-", "_"): file for file in [simulator["CORE"], *ALIASES]}

# All an alias consists of: a name to keep it from being empty, and code through which the core makes what the real
# library would do itself (driver_library.c). Its frame must be there: no tail call.
PASSAGE = """__attribute__((visibility("default"))) const char %s = 0;

__attribute__((visibility("default"), noinline)) void cm_sim_from(void (*work)(void *), void *argument)
{
    work(argument);
    __asm__ volatile("");
}
"""

# CUPTI's functions, for who looks them up in its file: which of them there are depends on the release that is imitated
# (cupti_exports.c), so each is asked for when it is looked up. Who was linked finds the core's, which come first.
ASK = """
#include <dlfcn.h>
#include <stddef.h>

typedef void (*function)(void);

static function ask(const char *name)
{
    void *core = dlopen("%s", RTLD_NOW | RTLD_NOLOAD);
    function (*answer)(const char *) = NULL;

    if (core) {
        *(void **)&answer = dlsym(core, "cm_sim_cupti_function");
        dlclose(core);
    }
    return answer ? answer(name) : NULL;
}

#define RELEASE_HAS(name) \\
    static function ask_##name(void) \\
    { \\
        return ask(#name); \\
    } \\
    __attribute__((visibility("default"), ifunc("ask_" #name))) void name(void);
"""


def shared(file, soname, sources):
    return Extension(
        f"{SIMULATOR}.{next(key for key in FILES if FILES[key] == file)}",
        sources,
        depends=[*glob("csrc/simulator/*/*.h"), *glob(f"{TABLES}/*"), "cuptimem/simulator/__init__.py", "setup.py"],
        extra_compile_args=flags,
        extra_link_args=[f"-Wl,-soname,{soname}"],
    )


class BuildWithSimulator(build_ext):
    """Builds the simulated device's libraries as if they were extension modules with odd file names."""

    def get_ext_filename(self, fullname):
        *package, name = fullname.split(".")
        return os.path.join(*package, FILES[name]) if name in FILES else super().get_ext_filename(fullname)

    def build_extension(self, ext):
        package, _, key = ext.name.rpartition(".")
        if package == SIMULATOR:
            if FILES[key] == simulator["CORE"]:
                self.describe_core(ext)
            else:
                self.describe_alias(ext, ALIASES[FILES[key]])
        super().build_extension(ext)

    def describe_core(self, ext):
        """Adds the entry points that the tables describe."""
        folder = Path(self.build_temp, SIMULATOR)
        folder.mkdir(parents=True, exist_ok=True)
        generated = folder / "entries.c"
        generated.write_text(runpy.run_path(f"{TABLES}/generate.py")["generate"](Path(TABLES)))
        ext.sources = [*ext.sources, str(generated)]
        ext.include_dirs = ["csrc/simulator"]
        ext.libraries = ["dl", "pthread", "rt"]
        # The core's own calls of what it exports stay inside it, whoever else exports the same name.
        ext.extra_link_args = [*ext.extra_link_args, "-Wl,-Bsymbolic-functions"]

    def describe_alias(self, ext, alias):
        """An almost empty library that needs the core, with the version node that clients of the real one ask for."""
        folder = Path(self.build_temp, SIMULATOR, alias.file)
        folder.mkdir(parents=True, exist_ok=True)
        anchor = "cuptimem_alias_" + alias.soname.replace(".", "_").replace("-", "_")
        source, script, stand_in = folder / "alias.c", folder / "alias.map", folder / simulator["CORE"]
        text, names = PASSAGE % anchor, [anchor, "cm_sim_from"]
        if alias.soname == simulator["CUPTI"]:
            functions = runpy.run_path(f"{TABLES}/generate.py")["read"](Path(TABLES, "cupti.txt")).entries
            text += ASK % simulator["CORE"] + "".join(f"RELEASE_HAS({name})\n" for name in functions)
            names += functions
        source.write_text(text)
        script.write_text(f"{alias.version or ''} {{ global: {'; '.join(names)}; local: *; }};\n")
        # What is linked to only lends its SONAME: the core itself may not be built yet.
        self.compiler.link_shared_object([], str(stand_in), extra_postargs=[f"-Wl,-soname,{simulator['CORE']}"])
        ext.sources = [str(source)]
        ext.extra_link_args = [
            *ext.extra_link_args,
            f"-Wl,--version-script,{script}",
            "-Wl,--no-as-needed",
            str(stand_in),
            "-Wl,-rpath,$ORIGIN",
        ]


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
        ),
        shared(simulator["CORE"], simulator["CORE"], sorted(glob("csrc/simulator/*/*.c"))),
        *(shared(alias.file, alias.soname, []) for alias in simulator["ALIASES"]),
    ]
    if sys.platform == "linux"
    else [],
    cmdclass={"build_py": BuildWithPth, "build_ext": BuildWithSimulator},
)
