"""Builds the simulated device's libraries, as extension modules of the package with odd file names.

cuptimem's own setup.py reads this file by its path, for `extensions` and `Build`: its wheel has the package.
"""

import logging
import os
import runpy
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError, OptionError

FLAGS = ["-std=gnu11", "-O2", "-g", "-fexceptions", "-fvisibility=hidden", "-fno-strict-aliasing"]
FLAGS += ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
if os.environ.get("CUPTIMEM_WERROR"):
    FLAGS.append("-Werror")

PACKAGE = "cudasim"
HERE = os.path.relpath(os.path.dirname(os.path.abspath(__file__)))
CSRC, TABLES = os.path.join(HERE, "csrc"), os.path.join(HERE, "tables")
DEVICE, CARDS = os.path.join(HERE, "__init__.py"), os.path.join(HERE, "cards.py")
device = runpy.run_path(DEVICE)  # lists the libraries, whose file names are SONAMEs, and the reasons
ALIASES = {alias.file: alias for alias in device["ALIASES"]}
FILES = {file.replace(".", "_").replace("-", "_"): file for file in [device["CORE"], *ALIASES]}

# An alias has a name, which keeps it from being empty, and a function through which the core calls the driver where the
# real library would (driver_library.c). That function's frame must be on the stack: no tail call.
PASSAGE = """__attribute__((visibility("default"))) const char %s = 0;

__attribute__((visibility("default"), noinline)) void cm_sim_from(void (*work)(void *), void *argument)
{
    work(argument);
    __asm__ volatile("");
}
"""

# CUPTI's functions, for programs that look them up in its file: they depend on the release that is imitated
# (cupti_exports.c), so each lookup asks the core. A program linked with CUPTI gets the core's, which come first.
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


def extensions():
    core = shared(device["CORE"], device["CORE"], sorted(glob(f"{CSRC}/*/*.c")))
    return [core, *(shared(alias.file, alias.soname, []) for alias in ALIASES.values())]


def shared(file, soname, sources):
    return Extension(
        f"{PACKAGE}.{next(key for key in FILES if FILES[key] == file)}",
        sources,
        depends=[*glob(f"{CSRC}/*/*.h"), *glob(f"{TABLES}/*"), DEVICE, CARDS, os.path.join(HERE, "setup.py")],
        extra_compile_args=FLAGS,
        extra_link_args=[f"-Wl,-soname,{soname}"],
    )


NEEDED = (
    "cuptimem is compiled with gcc and Python's headers: apt install gcc python3-dev, or dnf install gcc python3-devel"
)


def jobs():
    """How many compilers may run at once: MAX_JOBS, else one for each CPU of this process."""
    value = os.environ.get("MAX_JOBS")
    if not value:
        return len(os.sched_getaffinity(0))
    if not value.isdecimal() or int(value) == 0:
        raise OptionError(f"MAX_JOBS is the number of compilers that may run at once, not {value!r}")
    return int(value)


def is_current(made, command):
    """Whether the file was made by this command, from files that have not changed since. The compiler lists them."""
    try:
        if Path(f"{made}.command").read_text() != subprocess.list2cmdline(command):
            return False
        used = Path(f"{made}.d").read_text().replace("\\\n", " ").partition(": ")[2].split()
        return bool(used) and max(map(os.path.getmtime, used)) < os.path.getmtime(made)
    except OSError:
        return False


def write_changed(path, text):
    """Keeps the time of a file that says so already: what is made of it is current."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class Build(build_ext):
    """Compiles in parallel, and only what has changed where objects are kept. The simulated device's libraries are
    extension modules with odd file names to it."""

    def build_extensions(self):
        if self.editable_mode:  # else in a folder that is gone afterwards
            self.build_temp = os.path.join("build", f"temp.{self.plat_name}-{sys.implementation.cache_tag}")
        # Some Pythons link with the path of their own libraries, a folder of the machine that builds.
        foreign = [word for word in sysconfig.get_config_var("LDSHARED").split() if word.startswith("-Wl,-rpath")]
        self.compiler.linker_so = [word for word in self.compiler.linker_so if word not in foreign]
        # setuptools calls one of the two, depending on its version.
        self.compiler.call = self.compiler.spawn = self.run_compiler
        compile_serially = self.compiler.compile

        def compile_in_parallel(sources, **options):
            started = [pool.submit(compile_serially, [source], **options) for source in sources]
            return [file for compiled in started for file in compiled.result()]

        self.compiler.compile = compile_in_parallel
        with ThreadPoolExecutor(jobs()) as pool:
            try:
                super().build_extensions()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # what has not begun would fail the same way
                raise

    def run_compiler(self, command, **options):
        """Runs the compiler or linker. Its output is shown in one piece, because others run beside it."""
        target = command[command.index("-o") + 1]
        compiles = "-c" in command
        if compiles and is_current(target, command):
            return
        asked = command
        command = [*command, "-MD", "-MF", f"{target}.d"] if compiles else command
        self.announce(subprocess.list2cmdline(command), logging.INFO)
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        try:
            done = subprocess.run(command, text=True, errors="replace", **options)
        except OSError as error:
            raise CompileError(f"{command[0]!r} does not start ({error.strerror}). {NEEDED}") from error
        if done.returncode and not Path(sysconfig.get_path("include"), "Python.h").exists():
            raise CompileError(f"there is no Python.h for {sys.executable}. {NEEDED}")
        print(done.stdout, end="", file=sys.stderr, flush=True)
        if done.returncode:
            raise CompileError(f"{command[0]!r} failed with exit code {done.returncode} on {target}")
        if compiles:
            Path(f"{target}.command").write_text(subprocess.list2cmdline(asked))

    def get_ext_filename(self, fullname):
        *package, name = fullname.split(".")
        return os.path.join(*package, FILES[name]) if name in FILES else super().get_ext_filename(fullname)

    def build_extension(self, ext):
        package, _, key = ext.name.rpartition(".")
        if package == PACKAGE:
            if FILES[key] == device["CORE"]:
                self.describe_core(ext)
            else:
                self.describe_alias(ext, ALIASES[FILES[key]])
        super().build_extension(ext)

    def describe_core(self, ext):
        """Adds what the tables describe."""
        folder = Path(self.build_temp, f"{PACKAGE}.libraries")
        runpy.run_path(f"{TABLES}/generate.py")["write"](folder, Path(TABLES), runpy.run_path(CARDS)["CARDS"])
        ext.sources = [*ext.sources, str(folder / "entries.c")]
        ext.include_dirs = [CSRC, str(folder)]
        ext.libraries = ["dl", "pthread", "rt"]
        # The core's own calls of what it exports stay inside it, whoever else exports the same name.
        ext.extra_link_args = [*ext.extra_link_args, "-Wl,-Bsymbolic"]

    def describe_alias(self, ext, alias):
        """An almost empty library that needs the core, with the version node that clients of the real one ask for."""
        folder = Path(self.build_temp, f"{PACKAGE}.libraries", alias.file)
        folder.mkdir(parents=True, exist_ok=True)
        anchor = "cuptimem_alias_" + alias.soname.replace(".", "_").replace("-", "_")
        source, script, stand_in = folder / "alias.c", folder / "alias.map", folder / device["CORE"]
        text, names = PASSAGE % anchor, [anchor, "cm_sim_from"]
        if alias.soname in device["CUPTI"]:
            functions = runpy.run_path(f"{TABLES}/generate.py")["read"](Path(TABLES, "cupti.txt")).entries
            text += ASK % device["CORE"] + "".join(f"RELEASE_HAS({name})\n" for name in functions)
            names += functions
        write_changed(source, text)
        write_changed(script, f"{alias.version or ''} {{ global: {'; '.join(names)}; local: *; }};\n")
        # What is linked to only lends its SONAME: the core itself may not be built yet.
        if not stand_in.exists():
            nothing = ["-x", "c", os.devnull]  # some compilers want a file
            soname = [f"-Wl,-soname,{device['CORE']}"]
            self.compiler.link_shared_object([], str(stand_in), extra_preargs=nothing, extra_postargs=soname)
        ext.sources = [str(source)]
        ext.extra_link_args = [
            *ext.extra_link_args,
            f"-Wl,--version-script,{script}",
            "-Wl,--no-as-needed",
            str(stand_in),
            "-Wl,-rpath,$ORIGIN",
        ]


class Modules(build_py):
    """All modules of the package but this file."""

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != (PACKAGE, "setup")]


if __name__ == "__main__":
    libraries = extensions() if sys.platform == "linux" else []
    setup(ext_modules=libraries, cmdclass={"build_ext": Build, "build_py": Modules})
