"""The behaviour tables and what is made of them."""

import re
import subprocess
from pathlib import Path

import pytest

import cudasim
from cudasim.tests.objects import SOURCES, TABLES, generator
from tests.build import SANITIZERS, build

HEAD = "library cuTEST\nrefused 15\n"


def generated(folder: Path, text: str) -> str:
    (folder / "test.txt").write_text(HEAD + text)
    return str(generator.generate(folder))


@pytest.mark.sanitizer
def test_words(tmp_path: Path) -> None:
    """Each word does in C what it says."""
    (tmp_path / "entries.c").write_text(
        generated(
            tmp_path,
            "ok nop idle\nrefuse gone  # a comment\nerror=7 fail\ncustom mine\nhandle@1 open\nclose@0 shut\n"
            "object@0 make\nfree@0 drop\nint@0=-3 size@1=5 int64@2 float@3 double@4=2 complex@5 zcomplex@6 many\n",
        )
    )
    client = tmp_path / "client.c"
    client.write_text(
        r"""
        #include <assert.h>
        #include <complex.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <string.h>
        #include "core/sim.h"
        int nop(void), idle(void), gone(int), fail(void), open(int, void *), shut(void *), make(void **), drop(void *);
        int many(int *, size_t *, int64_t *, float *, double *, float complex *, double complex *);
        static char noted[64], owner[64], *device;
        static int charged;
        atomic_bool cm_sim_timing;
        cm_sim_timer cm_sim_timer_begin(void) { abort(); }
        void cm_sim_timer_end(cm_sim_timer *timer) { abort(); }
        void cm_sim_note(cm_sim_note_kind kind, const char *name, uint64_t bytes)
        {
            assert(kind == CM_SIM_NOTE_UNDESCRIBED && bytes == 0);
            strcpy(noted, name);
        }
        bool cm_sim_is_device(const void *address) { return address == device; }
        void *cm_sim_handle_new(const char *library)
        {
            strcpy(owner, library);
            return charged++ ? NULL : malloc(1);
        }
        void cm_sim_handle_free(void *handle) { free(handle); }
        int mine(void) { return 3; }
        int main(void)
        {
            void *handle = NULL, *object = NULL;
            int i = 9; size_t s = 9; int64_t l = 9; float f = 9; double d = 9;
            float complex c = 9; double complex z = 9;
            assert(nop() == 0 && idle() == 0 && fail() == 7 && noted[0] == 0);
            assert(gone(1) == 15 && strcmp(noted, "gone") == 0);
            assert(open(0, &handle) == 0 && handle && strcmp(owner, "cuTEST") == 0);
            assert(shut(handle) == 0 && open(0, &handle) != 0 && !handle && open(0, NULL) != 0);
            assert(make(&object) == 0 && object && drop(object) == 0 && make(NULL) != 0);
            assert(many(&i, &s, &l, &f, &d, &c, &z) == 0);
            assert(i == -3 && s == 5 && l == 0 && f == 0 && d == 2 && c == 0 && z == 0);
            f = 9;
            device = (char *)&f;
            assert(many(NULL, NULL, NULL, &f, NULL, NULL, NULL) == 0 && f == 9);
            return 0;
        }"""
    )
    flags = ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", SANITIZERS["address"]]
    program = build("client", [tmp_path / "entries.c", client], *flags, f"-I{SOURCES}")
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "name",
        "name what",
        "name ok=1",
        "name ok int@0",
        "name int",
        "name error",
        "name error@1",
        "name handle@0=1",
        "name@1 ok",
        "ok",
        "ok name ok",
        "ok int@0 name",
        "ok name\nrefuse name",
        "ok since=2000 name",
        "again ok\nagain ok",
        "name int@-1",
        "name ok id=3 (int a",
        "name ok (int a)",
        "name ok id=3\nother ok id=3",
        "name ok id=3\ncallbacks 2 two three",
        "callbacks 2",
        "lookup name 2000",
    ],
)
def test_what_cannot_be_said(line: str, tmp_path: Path) -> None:
    with pytest.raises(generator.Malformed, match=r"test\.txt:"):
        generated(tmp_path, line)


def test_two_tables_cannot_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text(HEAD + "name ok\n")
    with pytest.raises(generator.Malformed, match="another table"):
        generated(tmp_path, "name ok")


def test_a_table_needs_its_head(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("name ok\n")
    with pytest.raises(generator.Malformed, match="needs the lines"):
        generator.generate(tmp_path)


def exported() -> dict[str, bool]:
    """The core's functions, and whether each was written by hand."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", cudasim.library()], capture_output=True, text=True, check=True
    )
    found = re.findall(r"^[0-9a-f]+ ([TW]) (\w+)$", listed.stdout, re.MULTILINE)
    return {name: kind == "T" for kind, name in found}


def test_the_tables_tell_the_truth() -> None:
    """Whatever is exported is in a table, and exactly what is written by hand is said to be."""
    described = {name: entry for table in generator.tables(TABLES).values() for name, entry in table.entries.items()}
    found = exported()
    ours = {name for name in found if name.startswith("cm_sim_")}
    assert described.keys() - found.keys() == set()
    by_hand = {name for name, hand in found.items() if hand} - ours
    custom = {name for name, entry in described.items() if entry.custom}
    assert custom - by_hand == set()
    assert {name for name in by_hand - custom if name in described} == set()
    libraries = ("cublas", "cudnn", "cusolver", "cusparse", "cufft")
    assert {name for name in by_hand - custom if name.startswith(libraries)} == set()
