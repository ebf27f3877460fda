"""A program that is linked with CUDA 12's runtime: its structure of properties, and the releases it is told of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import cudasim
from tests.conftest import clean_environment

CLIENT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int GET(void *properties, int device);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaRuntimeGetVersion(int *version);
int cudaPointerGetAttributes(void *attributes, const void *pointer);
int cudaStreamGetCaptureInfo_v2(void *stream, int *status, void *id, void *graph, void *after, void *count);
int cudaGraphCreate(void **graph, unsigned flags);
int cudaGraphAddChildGraphNode(void **node, void *graph, void *const *after, size_t count, void *child);
#if SIZE == 1032 /* CUDA 12, which has no edges here */
int cudaGraphNodeGetDependencies(void *node, void **before, size_t *count);
#define BEFORE(node, nodes, count) cudaGraphNodeGetDependencies(node, nodes, count)
#else
int cudaGraphNodeGetDependencies(void *node, void **before, void *edges, size_t *count);
#define BEFORE(node, nodes, count) cudaGraphNodeGetDependencies(node, nodes, NULL, count)
#endif
static int depends(void)
{
    void *graph, *child, *first, *second, *found = NULL;
    size_t count = 1;
    if (cudaGraphCreate(&graph, 0) || cudaGraphCreate(&child, 0) ||
        cudaGraphAddChildGraphNode(&first, graph, NULL, 0, child) ||
        cudaGraphAddChildGraphNode(&second, graph, &first, 1, child) || BEFORE(second, &found, &count))
        return 0;
    return count == 1 && found == first;
}
int main(void)
{
    char properties[2048], pointer[32];
    unsigned cupti = 0;
    int runtime = 0, status = -1;
    memset(properties, 0x5a, sizeof properties);
    memset(pointer, 0x5a, sizeof pointer);
    int (*version)(unsigned *) = dlsym(RTLD_DEFAULT, "cuptiGetVersion");
    printf("%d %d ", GET(properties, 0), cudaRuntimeGetVersion(&runtime));
    printf("%d ", cudaStreamGetCaptureInfo_v2(NULL, &status, NULL, NULL, NULL, NULL) || status);
    printf("%d ", version(&cupti));
    printf("%d ", cudaPointerGetAttributes(pointer, NULL) || pointer[24] != 0x5a); /* CUDA 12's has 24 bytes */
    printf("%d ", !depends());
    printf("%d %u\n%s\n", runtime, cupti, properties);
    for (int offset = 0; offset < SIZE; offset += 4)
        printf("%d ", *(int *)(properties + offset));
    printf("\n%d\n", *(unsigned char *)(properties + SIZE));
    static const int asked[] = {13, 9, 75, 15, 16, 17, 18, 20, 21, 69, 22, 30, 33,
                                36, 37, 38, 39, 81, 87, 88, 96, 97, 109, 111, 99, 129};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int value = -1;
        cudaDeviceGetAttribute(&value, asked[i], 0);
        printf("%d ", value);
    }
    return 0;
}
"""
SIZE = {"12": 1032, "13": 1008}
# Where CUDA 12.4's driver_types.h has the fields of the attributes that the client asks for, in that order.
OFFSETS = (348, 352, 360, 384, 388, 392, 396, 404, 408, 416, 420, 568, 584)
OFFSETS += (608, 612, 616, 624, 640, 668, 672, 692, 696, 716, 720, 728, 776)
TOLD = {"12": ["12080", "26"], "13": ["13000", "130001"]}


@pytest.mark.parametrize("major", TOLD)
def test_a_program_of_either_release(major: str, tmp_path: Path) -> None:
    (tmp_path / "client.c").write_text(CLIENT)
    name = "cudaGetDeviceProperties_v2" if major == "12" else "cudaGetDeviceProperties"
    libraries = [cudasim.folder() / f"libcudart-sim.so.{major}", cudasim.library()]
    command = ["gcc", tmp_path / "client.c", f"-DGET={name}", f"-DSIZE={SIZE[major]}", "-Wl,--no-as-needed", *libraries]
    subprocess.run([*command, f"-Wl,-rpath,{cudasim.folder()}", "-ldl", "-o", tmp_path / "client"], check=True)
    environment = {**clean_environment(), **cudasim.variables(), "CUPTIMEM_SIM_DEVICE": "l4"}
    done = subprocess.run([tmp_path / "client"], capture_output=True, text=True, env=environment, check=True)
    codes, card, words, behind, asked = done.stdout.splitlines()
    assert codes.split() == ["0", "0", "0", "0", "0", "0", *TOLD[major]] and card == "NVIDIA L4"
    assert behind == str(0x5A)  # it ends where the program's structure does
    if major == "12":
        assert [words.split()[offset // 4] for offset in OFFSETS] == asked.split()
