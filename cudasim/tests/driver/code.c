/* Modules, kernels, streams, entry points by name, NVML. */
#include "check.h"
#include "reported.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ptx[] = "//\n// made by hand\n/* .entry in a comment */\n"
                          ".version 8.5\n.target sm_90\n.address_size 64\n"
                          ".extern .func helper\n(\n.param .b32 a\n);\n"
                          ".global .align 4 .b8 table[4096];\n"
                          ".visible .const .align 8 .v2 .f32 pairs[3][5];\n"
                          ".file 1 \"a .entry in a string\"\n"
                          ".visible .entry _Z3addPfS_(\n\t.param .u64 p0\n)\n"
                          ".maxntid 256\n{\n .global .align 4 .b8 inside[8];\n ret;\n}\n"
                          ".weak .entry second()\n{ ret; }\n";

static void text_modules(void)
{
    handle module = NULL, function = NULL, again = NULL;
    const char *name = NULL;
    EQUAL(cuModuleLoadData(&module, ptx), INVALID_CONTEXT);
    begin(0);
    size_t context = used(0), bytes = 0;
    unsigned count = 0;
    address variable = 0, same = 0;
    EQUAL(cuModuleLoadData(&module, ptx), OK);
    EQUAL(cuModuleGetFunctionCount(&count, module), OK);
    EQUAL(count, 2);
    EQUAL(cuModuleGetFunction(&function, module, "_Z3addPfS_"), OK);
    EQUAL(cuModuleGetFunction(&again, module, "_Z3addPfS_"), OK);
    CHECK(function == again);
    EQUAL(cuFuncGetName(&name, function), OK);
    CHECK(!strcmp(name, "_Z3addPfS_"));
    EQUAL(cuModuleGetFunction(&again, module, "second"), OK);
    EQUAL(cuModuleGetFunction(&again, module, "entry"), NOT_FOUND);
    EQUAL(cuModuleGetFunction(&again, module, "inside"), NOT_FOUND);
    EQUAL(cuModuleGetFunction(&again, module, NULL), INVALID_VALUE);
    EQUAL(used(0), context); /* variables take memory when they are used */
    EQUAL(cuModuleGetGlobal_v2(&variable, &bytes, module, "table"), OK);
    EQUAL(bytes, 4096);
    CHECK(used(0) > context);
    EQUAL(cuModuleGetGlobal_v2(&same, NULL, module, "table"), OK);
    EQUAL(same, variable);
    EQUAL(cuModuleGetGlobal_v2(NULL, &bytes, module, "pairs"), OK);
    EQUAL(bytes, 120);
    EQUAL(cuModuleGetGlobal_v2(&variable, &bytes, module, "inside"), NOT_FOUND);
    EQUAL(cuModuleUnload(module), OK);
    EQUAL(used(0), context);
    EQUAL(cuModuleUnload(module), INVALID_HANDLE);
    EQUAL(cuModuleGetFunction(&again, module, "second"), INVALID_HANDLE);
    EQUAL(cuFuncGetName(&name, function), INVALID_HANDLE);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
    EQUAL(cuModuleLoadData(&module, NULL), INVALID_VALUE);
    EQUAL(cuModuleLoadData(NULL, ptx), INVALID_VALUE);
    EQUAL(cuModuleLoad(&module, "/nowhere/at.all"), 301);
    EQUAL(cuModuleLoad(&module, "/"), 301);
    char path[] = "/tmp/cuptimemXXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, ptx, sizeof ptx - 1) == sizeof ptx - 1);
    EQUAL(cuModuleLoad(&module, path), OK);
    EQUAL(cuModuleGetFunction(&function, module, "second"), OK);
    EQUAL(cuModuleUnload(module), OK);
    handle library = NULL;
    void *unified = NULL;
    EQUAL(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0), OK);
    EQUAL(cuLibraryGetKernel(&function, library, "second"), OK);
    EQUAL(cuLibraryGetUnifiedFunction(&unified, library, "second"), NOT_FOUND);
    EQUAL(cuLibraryUnload(library), OK);
    EQUAL(cuLibraryGetUnifiedFunction(&unified, library, "second"), INVALID_HANDLE);
    close(file);
    unlink(path);
    /* What cannot be read may hold any kernel */
    static const char packed[64] = "\x50\xed\x55\xba\x01";
    int loading = 0;
    EQUAL(cuModuleGetLoadingMode(&loading), OK);
    EQUAL(loading, 2); /* lazily */
    EQUAL(cuModuleLoadFatBinary(&module, NULL), INVALID_VALUE);
    EQUAL(cuModuleLoadFatBinary(&module, packed), OK);
    EQUAL(cuModuleGetFunction(&function, module, "anything"), OK);
    EQUAL(cuModuleGetGlobal_v2(&variable, &bytes, module, "anything"), NOT_FOUND);
    EQUAL(cuModuleUnload(module), OK);
}

/* The least cubin: a symbol table and its names. */
typedef struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr section[3];
    Elf64_Sym symbol[4];
    char names[32];
} cubin;

static cubin make_cubin(void)
{
    cubin made;
    memset(&made, 0, sizeof made);
    memcpy(made.header.e_ident, ELFMAG, SELFMAG);
    made.header.e_ident[EI_CLASS] = ELFCLASS64;
    made.header.e_shoff = offsetof(cubin, section);
    made.header.e_shentsize = sizeof(Elf64_Shdr);
    made.header.e_shnum = 3;
    made.section[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                   .sh_offset = offsetof(cubin, symbol),
                                   .sh_size = sizeof made.symbol,
                                   .sh_link = 2,
                                   .sh_entsize = sizeof(Elf64_Sym)};
    made.section[2] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(cubin, names), .sh_size = sizeof made.names};
    memcpy(made.names, "\0kernel\0data\0other", 19);
    made.symbol[1] =
        (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1};
    made.symbol[2] = (Elf64_Sym){.st_name = 8,
                                 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                                 .st_shndx = 1,
                                 .st_other = 4, /* STO_CUDA_MANAGED */
                                 .st_size = 256};
    made.symbol[3] =
        (Elf64_Sym){.st_name = 13, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)}; /* elsewhere */
    return made;
}

static void cubins(void)
{
    begin(0);
    handle module = NULL, function = NULL, library = NULL, kernel = NULL;
    address variable = 0;
    size_t bytes = 0;
    cubin image = make_cubin();
    EQUAL(cuModuleLoadData(&module, &image), OK);
    EQUAL(cuModuleGetFunction(&function, module, "kernel"), OK);
    EQUAL(cuModuleGetFunction(&function, module, "other"), NOT_FOUND);
    EQUAL(cuModuleGetGlobal_v2(&variable, &bytes, module, "data"), OK);
    EQUAL(bytes, 256);
    EQUAL(cuModuleUnload(module), OK);
    EQUAL(cuLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0), OK);
    EQUAL(cuLibraryGetManaged(&variable, &bytes, library, "data"), OK);
    *(char *)(uintptr_t)variable = 1; /* the host's, too */
    EQUAL(bytes, 256);
    EQUAL(cuLibraryGetManaged(&variable, NULL, library, "kernel"), NOT_FOUND);
    EQUAL(cuLibraryGetKernel(&kernel, library, "kernel"), OK);
    EQUAL(cuKernelGetFunction(&function, kernel), OK);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), OK);
    EQUAL(cuLibraryUnload(library), OK);
    EQUAL(cuKernelGetFunction(&function, kernel), INVALID_HANDLE);
    /* Linked with a text: both are found; a broken part may hold anything */
    handle linker = NULL;
    void *linked = NULL;
    EQUAL(cuLinkCreate_v2(0, NULL, NULL, &linker), OK);
    EQUAL(cuLinkAddData_v2(linker, 0, &image, sizeof image, "a", 0, NULL, NULL), OK);
    EQUAL(cuLinkAddData_v2(linker, 1, (void *)ptx, sizeof ptx, "b", 0, NULL, NULL), OK);
    EQUAL(cuLinkAddData_v2(linker, 1, NULL, 4, "c", 0, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLinkComplete(linker, &linked, &bytes), OK);
    EQUAL(cuModuleLoadData(&module, linked), OK);
    EQUAL(cuLinkDestroy(linker), OK);
    EQUAL(cuLinkDestroy(linker), INVALID_HANDLE);
    EQUAL(cuLinkComplete(linker, &linked, &bytes), INVALID_HANDLE);
    EQUAL(cuModuleGetFunction(&function, module, "kernel"), OK);
    EQUAL(cuModuleGetFunction(&function, module, "second"), OK);
    EQUAL(cuModuleGetFunction(&function, module, "third"), NOT_FOUND);
    EQUAL(cuModuleUnload(module), OK);
    image.section[1].sh_size = 1 << 20;
    EQUAL(cuLinkCreate_v2(0, NULL, NULL, &linker), OK);
    EQUAL(cuLinkAddData_v2(linker, 0, &image, sizeof image, "a", 0, NULL, NULL), OK);
    EQUAL(cuLinkComplete(linker, &linked, NULL), OK);
    EQUAL(cuModuleLoadData(&module, linked), OK);
    EQUAL(cuModuleGetFunction(&function, module, "third"), OK);
    EQUAL(cuModuleUnload(module), OK);
    EQUAL(cuLinkDestroy(linker), OK);
}

static handle module_of_kernel;

static handle kernel(void)
{
    static const char text[] = ".version 8.5\n.target sm_90\n.visible .entry k() { ret; }\n";
    handle function = NULL;
    EQUAL(cuModuleLoadData(&module_of_kernel, text), OK);
    EQUAL(cuModuleGetFunction(&function, module_of_kernel, "k"), OK);
    return function;
}

static void done(handle function)
{
    EQUAL(cuModuleUnload(module_of_kernel), OK);
}

static void count_up(void *count)
{
    ++*(int *)count;
}

static void call_back(handle stream, int status, void *count)
{
    EQUAL(status, OK);
    *(int *)count += stream != NULL;
}

static void launches(void)
{
    begin(0);
    handle function = kernel();
    int value = 0, count = 0;
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL), OK);
    EQUAL(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 64, 64, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_HANDLE);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (handle)0x77, NULL, NULL), INVALID_HANDLE);
    /* More shared memory than usual has to be asked for first */
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 100000, NULL, NULL, NULL), INVALID_VALUE);
    EQUAL(cuFuncSetAttribute(function, 8, 100000), OK);
    EQUAL(cuFuncGetAttribute(&value, 8, function), OK);
    EQUAL(value, 100000);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 100000, NULL, NULL, NULL), OK);
    EQUAL(cuFuncSetAttribute(function, 8, 10 << 20), INVALID_VALUE);
    EQUAL(cuFuncGetAttribute(&value, 0, function), OK);
    EQUAL(value, 1024);
    EQUAL(cuFuncGetAttribute(&value, 6, function), OK);
    EQUAL(value, 90);
    EQUAL(cuFuncGetAttribute(&value, 16, function), INVALID_VALUE);
    EQUAL(cuFuncGetAttribute(NULL, 4, function), OK);
    launch wide = {.grid = {2, 1, 1}, .block = {128, 1, 1}};
    EQUAL(cuLaunchKernelEx(&wide, function, NULL, NULL), OK);
    EQUAL(cuLaunchKernelEx(NULL, function, NULL, NULL), INVALID_VALUE);
    EQUAL(cuOccupancyMaxActiveClusters(&value, function, &wide), OK);
    CHECK(value >= 132);

    /* Occupancy: threads, registers, shared memory */
    EQUAL(cuFuncGetAttribute(&value, 4, function), OK);
    int registers = value;
    EQUAL(cm_sim_occupancy(0, 1024, 32, 0), 2);
    EQUAL(cm_sim_occupancy(0, 1024, 64, 0), 1);
    EQUAL(cm_sim_occupancy(0, 256, 32, 0), 8);
    EQUAL(cm_sim_occupancy(0, 256, 255, 0), 1);
    EQUAL(cm_sim_occupancy(0, 32, 16, 0), 32);
    EQUAL(cm_sim_occupancy(0, 128, 32, 100 << 10), 2);
    EQUAL(cm_sim_occupancy(0, 128, 32, 232448), 1);
    EQUAL(cm_sim_occupancy(0, 128, 32, 232449), 0);
    EQUAL(cm_sim_occupancy(0, 2048, 32, 0), 0);
    EQUAL(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, 0), OK);
    EQUAL(value, cm_sim_occupancy(0, 256, registers, 0));
    int grid = 0, block = 0;
    EQUAL(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0), OK);
    EQUAL(block, 1024);
    EQUAL(grid, 132 * cm_sim_occupancy(0, 1024, registers, 0));
    EQUAL(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 100), OK);
    CHECK(block <= 100);
    EQUAL(cuLaunchCooperativeKernel(function, 132, 1, 1, 1024, 1, 1, 0, NULL, NULL), OK);
    EQUAL(cuLaunchCooperativeKernel(function, 133 * 32, 1, 1, 1024, 1, 1, 0, NULL, NULL),
          TOO_LARGE);
    EQUAL(cuLaunchHostFunc(NULL, count_up, &count), OK);
    EQUAL(count, 1);
    EQUAL(cuLaunchHostFunc(NULL, NULL, &count), INVALID_VALUE);

    _Alignas(128) uint64_t map[16];
    const uint64_t sizes[] = {1024, 512}, strides[] = {2048};
    const uint32_t box[] = {64, 64}, steps[] = {1, 1};
    address data = 0;
    EQUAL(cuMemAlloc_v2(&data, MIB), OK);
    EQUAL(cuTensorMapEncodeTiled(map, 6, 2, (void *)data, sizes, strides, box, steps, 0, 0, 0, 0),
          OK);
    EQUAL(cuTensorMapEncodeTiled(map, 6, 6, (void *)data, sizes, strides, box, steps, 0, 0, 0, 0),
          INVALID_VALUE);
    EQUAL(cuTensorMapEncodeTiled(map, 6, 2, (void *)(data + 1), sizes, strides, box, steps, 0, 0, 0,
                                 0),
          INVALID_VALUE);
    EQUAL(cuMemFree_v2(data), OK);
    done(function);
}

static void streams(void)
{
    handle context = begin(0), stream = NULL, event = NULL, later = NULL, of = NULL;
    int count = 0, status = -1;
    float took = -1;
    EQUAL(cuStreamCreate(NULL, 0), INVALID_VALUE);
    EQUAL(cuStreamCreate(&stream, 8), INVALID_VALUE);
    EQUAL(cuStreamCreate(&stream, 1), OK);
    EQUAL(cuStreamGetCtx(stream, &of), OK);
    CHECK(of == context);
    EQUAL(cuStreamQuery(stream), OK);
    EQUAL(cuStreamSynchronize(stream), OK);
    EQUAL(cuStreamAddCallback(stream, call_back, &count, 0), OK);
    EQUAL(count, 1);
    EQUAL(cuEventCreate(&event, 0), OK);
    EQUAL(cuEventCreate(&later, 0), OK);
    EQUAL(cuEventRecord(event, stream), OK);
    EQUAL(cuEventRecord(later, stream), OK);
    EQUAL(cuEventSynchronize(later), OK);
    EQUAL(cuEventQuery(event), OK);
    EQUAL(cuEventElapsedTime(&took, event, later), OK);
    CHECK(took >= 0);
    EQUAL(cuEventDestroy_v2(event), OK);
    EQUAL(cuEventDestroy_v2(event), INVALID_HANDLE);
    EQUAL(cuEventDestroy_v2(later), OK);
    /* A value in stream order */
    address flag = 0;
    uint32_t value = 0;
    EQUAL(cuMemAlloc_v2(&flag, 4096), OK);
    EQUAL(cuStreamWriteValue32_v2(stream, flag, 7, 0), OK);
    EQUAL(cuMemcpyDtoH_v2(&value, flag, 4), OK);
    EQUAL(value, 7);
    EQUAL(cuStreamWriteValue32_v2(stream, flag + 2, 7, 0), INVALID_VALUE);
    EQUAL(cuStreamWriteValue32_v2(stream, (address)&value, 7, 0), INVALID_VALUE);
    /* Recorded, then done: copies, settings and kernels */
    handle graph = NULL, exec = NULL, function = kernel();
    static char in[64] = "recorded";
    char out[64] = "";
    EQUAL(cuMemsetD8_v2(flag, 0, 4096), OK);
    EQUAL(cuStreamBeginCapture_v2(stream, 2), OK);
    EQUAL(cuStreamIsCapturing(stream, &status), OK);
    EQUAL(status, 1);
    EQUAL(cuMemsetD32Async(flag + 64, 0x01010101, 4, stream), OK);
    EQUAL(cuMemcpyHtoDAsync_v2(flag, in, 64, stream), OK);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), OK);
    EQUAL(cuStreamAddCallback(stream, call_back, &count, 0), 900);
    EQUAL(cuStreamEndCapture(stream, &graph), OK);
    EQUAL(cuMemcpyDtoH_v2(out, flag, 64), OK);
    EQUAL(out[0], 0);
    EQUAL(cuGraphInstantiateWithFlags(&exec, graph, 0), OK);
    EQUAL(cuGraphLaunch(exec, stream), OK);
    EQUAL(cuMemcpyDtoH_v2(out, flag, 64), OK);
    CHECK(!strcmp(out, "recorded"));
    EQUAL(cuMemcpyDtoH_v2(&value, flag + 64, 4), OK);
    EQUAL(value, 0x01010101);
    EQUAL(cuGraphExecDestroy(exec), OK);
    EQUAL(cuGraphDestroy(graph), OK);
    EQUAL(cuMemFree_v2(flag), OK);
    done(function);
    EQUAL(cuStreamDestroy_v2(stream), OK);
    EQUAL(cuStreamDestroy_v2(stream), INVALID_HANDLE);
    EQUAL(cuStreamSynchronize(stream), INVALID_HANDLE);
}

static int lookup(const char *name, int version, void **found)
{
    int status = -1;
    *found = &status;
    EQUAL(cuGetProcAddress_v2(name, found, version, 0, &status), OK);
    CHECK((*found != NULL) == (status == 0));
    return status;
}

static void entries(void)
{
    void *found = NULL, *other = NULL;
    int version = 0;
    EQUAL(cuDriverGetVersion(&version), OK);
    EQUAL(version, 13000);
    EQUAL(cuDriverGetVersion(NULL), INVALID_VALUE);
    EQUAL(lookup("cuMemAlloc", 12000, &found), 0);
    CHECK(found == (void *)cuMemAlloc_v2);
    EQUAL(lookup("cuGetProcAddress", 11030, &found), 0);
    EQUAL(lookup("cuGetProcAddress", 12000, &other), 0);
    CHECK(found == (void *)cuGetProcAddress && other == (void *)cuGetProcAddress_v2);
    EQUAL(lookup("cuStreamGetCaptureInfo", 11030, &found), 0);
    EQUAL(lookup("cuStreamGetCaptureInfo", 12030, &other), 0);
    CHECK(found != other);
    EQUAL(lookup("cuMulticastCreate", 11000, &found), 2); /* younger than that */
    EQUAL(lookup("cuNoSuchFunction", 13000, &found), 1);
    EQUAL(lookup("malloc", 13000, &found), 1);
    EQUAL(lookup("cuMemAlloc_v2", 13000, &found), 1); /* names are without versions */
    EQUAL(cuGetProcAddress_v2("cuMemAlloc", &found, 14000, 0, NULL), INVALID_VALUE);
    EQUAL(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 8, NULL), INVALID_VALUE);
    EQUAL(cuGetProcAddress_v2("cuMemAlloc", NULL, 13000, 0, NULL), INVALID_VALUE);
    EQUAL(cuGetProcAddress_v2(NULL, &found, 13000, 0, NULL), INVALID_VALUE);
    EQUAL(cuGetProcAddress("cuNoSuchFunction", &found, 13000, 0), NOT_FOUND);
    EQUAL(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 2, NULL), OK);
    CHECK(found == (void *)cuMemAlloc_v2);
    /* Not simulated: found, and named when it is called, not before */
    EQUAL(lookup("cuGreenCtxCreate", 12040, &found), 0);
    EQUAL(noted(CM_SIM_NOTE_UNDESCRIBED, "cuGreenCtxCreate"), 0);
    int (*create)(void **, void *, int, unsigned) = (int (*)(void **, void *, int, unsigned))found;
    EQUAL(create(NULL, NULL, 0, 1), NOT_SUPPORTED);
    EQUAL(create(NULL, NULL, 0, 1), NOT_SUPPORTED);
    EQUAL(noted(CM_SIM_NOTE_UNDESCRIBED, "cuGreenCtxCreate"), 2);
    const void *table = &version;
    EQUAL(cuGetExportTable(&table, "0123456789abcdef"), NOT_SUPPORTED);
    CHECK(!table);
    EQUAL(noted(CM_SIM_NOTE_REFUSED, "cuGetExportTable for client"), 1);
    const char *text = NULL;
    EQUAL(cuGetErrorName(2, &text), OK);
    CHECK(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    EQUAL(cuGetErrorString(2, &text), OK);
    CHECK(!strcmp(text, "out of memory"));
    EQUAL(cuGetErrorName(801, &text), OK);
    CHECK(!strcmp(text, "CUDA_ERROR_NOT_SUPPORTED"));
    EQUAL(cuGetErrorName(12345, &text), INVALID_VALUE);
    CHECK(!text);
}

static void nvml(void)
{
    handle device = NULL, same = NULL;
    unsigned count = 0;
    char uuid[96], small[8], name[96];
    memory bytes;
    EQUAL(nvmlDeviceGetCount_v2(&count), 1); /* not begun */
    EQUAL(nvmlShutdown(), 1);
    EQUAL(nvmlInit_v2(), 0);
    EQUAL(nvmlDeviceGetCount_v2(&count), 0);
    EQUAL(count, 2);
    EQUAL(nvmlDeviceGetHandleByIndex_v2(2, &device), 2);
    EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
    EQUAL(nvmlDeviceGetUUID(device, small, sizeof small), 7);
    EQUAL(nvmlDeviceGetUUID(device, uuid, sizeof uuid), 0);
    EQUAL(nvmlDeviceGetHandleByUUID(uuid, &same), 0);
    CHECK(same == device);
    EQUAL(nvmlDeviceGetHandleByUUID("GPU-0", &same), 6);
    EQUAL(nvmlDeviceGetHandleByPciBusId_v2("00000000:02:00.0", &same), 0);
    CHECK(same == device);
    EQUAL(nvmlDeviceGetHandleByPciBusId_v2("00000000:07:00.0", &same), 6);
    EQUAL(nvmlDeviceGetName(device, name, sizeof name), 0);
    CHECK(!strcmp(name, "NVIDIA H100 80GB HBM3"));
    EQUAL(nvmlDeviceGetName(&count, name, sizeof name), 2); /* no handle */
    /* The driver tells the same identity, by the number that the program sees */
    uint8_t raw[16];
    char expected[41];
    int visible = 0, seen = getenv("CUDA_VISIBLE_DEVICES") ? 0 : 1;
    EQUAL(cuDeviceGetCount(&visible), OK);
    EQUAL(visible, seen + 1);
    EQUAL(cuDeviceGetUuid_v2(raw, seen), OK);
    snprintf(expected, sizeof expected,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", raw[0],
             raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7], raw[8], raw[9], raw[10],
             raw[11], raw[12], raw[13], raw[14], raw[15]);
    CHECK(!strcmp(uuid, expected));
    char bus[32];
    EQUAL(cuDeviceGetPCIBusId(bus, sizeof bus, seen), OK);
    CHECK(!strcmp(bus, "0000:02:00.0"));
    /* Nobody uses it, then this process does */
    process one = {0};
    count = 1;
    EQUAL(nvmlDeviceGetComputeRunningProcesses(device, &count, &one), 0);
    EQUAL(count, 0);
    EQUAL(nvmlDeviceGetMemoryInfo(device, &bytes), 0);
    EQUAL(bytes.total, 4 * GIB);
    EQUAL(bytes.used, 0);
    begin(seen);
    address block = 0;
    EQUAL(cuMemAlloc_v2(&block, 64 * MIB), OK);
    EQUAL(nvmlDeviceGetMemoryInfo(device, &bytes), 0);
    EQUAL(bytes.used, used(seen));
    EQUAL(bytes.free, 4 * GIB - used(seen));
    memory_v2 more = {.version = 0x02000028};
    EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &more), 0);
    EQUAL(more.used, used(seen));
    more.version = 1;
    EQUAL(nvmlDeviceGetMemoryInfo_v2(device, &more), 25);
    count = 0;
    EQUAL(nvmlDeviceGetComputeRunningProcesses(device, &count, NULL), 7);
    EQUAL(count, 1);
    EQUAL(nvmlDeviceGetComputeRunningProcesses(device, &count, &one), 0);
    EQUAL(one.pid, getpid());
    EQUAL(one.bytes, used(seen));
    EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &same), 0);
    EQUAL(nvmlDeviceGetMemoryInfo(same, &bytes), 0);
    EQUAL(bytes.used, 0);
    EQUAL(cuMemFree_v2(block), OK);
    struct {
        unsigned version;
        unsigned char rest[32];
    } fabric = {.version = 0x02000000 | sizeof fabric};
    memset(fabric.rest, 0xff, sizeof fabric.rest);
    EQUAL(nvmlDeviceGetGpuFabricInfoV(device, &fabric), 0);
    EQUAL(fabric.rest[24], 0); /* state: not supported */
    int type;
    EQUAL(nvmlDeviceGetNvLinkRemoteDeviceType(device, 0, &type), 3);
    EQUAL(nvmlShutdown(), 0);
    EQUAL(nvmlDeviceGetMemoryInfo(device, &bytes), 1);
}

/* Every kind of call once: who it is, what it was given, what it did. */
static void told(void)
{
    begin(1);
    handle function = kernel(), stream = NULL, array = NULL;
    address block = 0, pooled = 0;
    void *host = NULL;
    char bytes[64] = "";
    const told_call *call;
    EQUAL(cuStreamCreate(&stream, 0), OK);

    unsigned made = told_contexts[1], ended = told_contexts[2];
    CHECK(made > 0); /* the primary one */
    handle context = NULL, primary = NULL;
    told_begin();
    EQUAL(cuCtxCreate_v2(&context, 0, 1), OK);
    EQUAL(told_end()->id, 235);
    EQUAL(told_contexts[1], made + 1);
    told_begin();
    EQUAL(cuCtxDestroy_v2(context), OK);
    EQUAL(told_end()->id, 322);
    EQUAL(told_contexts[2], ended + 1);
    told_begin();
    EQUAL(cuCtxDestroy_v2(context), INVALID_CONTEXT);
    EQUAL(told_end()->result, INVALID_CONTEXT);
    EQUAL(told_contexts[2], ended + 1);
    told_begin();
    EQUAL(cuDevicePrimaryCtxRetain(&primary, 1), OK);
    EQUAL(told_end()->id, 386);
    EQUAL(told_contexts[1], made + 1); /* there already */
    told_begin();
    EQUAL(cuDevicePrimaryCtxRelease_v2(1), OK);
    EQUAL(told_end()->id, 544);

    told_begin();
    EQUAL(cuMemAlloc_v2(&block, 4 * MIB), OK);
    call = told_end();
    EQUAL(call->id, 243);
    CHECK(!strcmp(call->name, "cuMemAlloc_v2"));
    EQUAL(call->device, 1);
    EQUAL(call->result, OK);
    EQUAL(call->records, 1);
    EQUAL(call->record[0].operation, 1);
    EQUAL(call->record[0].what, 3);
    EQUAL(call->record[0].address, block);
    EQUAL(call->record[0].bytes, 4 * MIB);
    address *out;
    memcpy(&out, call->parameters, sizeof out);
    CHECK(out == &block);

    told_begin();
    EQUAL(cuMemAlloc_v2(&pooled, 64 * GIB), OUT_OF_MEMORY);
    call = told_end();
    EQUAL(call->result, OUT_OF_MEMORY);
    EQUAL(call->records, 0);

    told_begin();
    EQUAL(cuMemcpyHtoDAsync_v2(block, bytes, 64, stream), OK);
    call = told_end();
    EQUAL(call->id, 277);
    CHECK(call->record[0].kind == 'c' && call->record[0].stream == stream);
    EQUAL(call->record[0].what, 1);
    EQUAL(call->record[0].bytes, 64);

    told_begin();
    EQUAL(cuMemsetD32_v2(block, 9, 16), OK);
    call = told_end();
    EQUAL(call->record[0].what, 9);
    EQUAL(call->record[0].bytes, 64);

    told_begin();
    EQUAL(cuLaunchKernel(function, 3, 1, 1, 64, 1, 1, 16, stream, NULL, NULL), OK);
    call = told_end();
    EQUAL(call->id, 307);
    CHECK(!strcmp(call->symbol, "k") && !strcmp(call->record[0].name, "k"));
    EQUAL(call->record[0].grid, 3);
    EQUAL(call->record[0].block, 64);
    EQUAL(call->record[0].shared, 16);
    CHECK(call->record[0].stream == stream);

    told_begin();
    EQUAL(cuLaunchKernel(function, 0, 1, 1, 64, 1, 1, 16, stream, NULL, NULL), INVALID_VALUE);
    call = told_end();
    EQUAL(call->records, 0);

    told_begin();
    EQUAL(cuMemFree_v2(block), OK);
    call = told_end();
    EQUAL(call->id, 245);
    EQUAL(call->record[0].operation, 2);
    EQUAL(call->record[0].bytes, 4 * MIB);

    told_begin();
    EQUAL(cuMemHostAlloc(&host, 8192, 0), OK);
    call = told_end();
    EQUAL(call->record[0].what, 2);
    told_begin();
    EQUAL(cuMemFreeHost(host), OK);
    call = told_end();
    EQUAL(call->record[0].operation, 2);
    EQUAL(call->record[0].bytes, 8192);

    told_begin();
    EQUAL(cuMemAllocAsync(&pooled, MIB, stream), OK);
    call = told_end();
    EQUAL(call->id, 598);
    EQUAL(call->records, 2); /* the default pool begins to be used */
    CHECK(call->record[0].kind == 'p');
    EQUAL(call->record[0].operation, 1);
    EQUAL(call->record[1].bytes, MIB);
    CHECK(call->record[1].stream == stream);
    told_begin();
    EQUAL(cuMemFreeAsync(pooled, stream), OK);
    call = told_end();
    EQUAL(call->id, 600);
    EQUAL(call->records, 1);
    EQUAL(call->record[0].bytes, MIB);
    told_begin();
    EQUAL(cuMemFreeAsync(pooled, stream), INVALID_VALUE);
    EQUAL(told_end()->records, 0);
    told_begin();
    EQUAL(cuStreamSynchronize(stream), OK); /* it keeps nothing */
    call = told_end();
    EQUAL(call->records, 1);
    CHECK(call->record[0].kind == 'p');
    EQUAL(call->record[0].operation, 3);
    told_begin();
    EQUAL(cuMemAllocAsync_ptsz(&pooled, MIB, stream), OK);
    call = told_end();
    EQUAL(call->id, 599);
    EQUAL(call->records, 1);
    told_begin();
    EQUAL(cuMemFree_v2(pooled), OK); /* out of stream order */
    call = told_end();
    EQUAL(call->records, 1);
    EQUAL(call->record[0].bytes, MIB);
    CHECK(!call->record[0].stream);

    const shape flat = {.width = 1024, .format = 0x20, .channels = 1};
    told_begin();
    EQUAL(cuArrayCreate_v2(&array, &flat), OK);
    call = told_end();
    EQUAL(call->record[0].what, 4);
    EQUAL(call->record[0].bytes, 4096);
    told_begin();
    EQUAL(cuArrayDestroy(array), OK);
    call = told_end();
    EQUAL(call->record[0].operation, 2);

    uint64_t physical = 0;
    const properties asked = {.type = 1, .where = {1, 1}};
    told_begin();
    EQUAL(cuMemCreate(&physical, 2 * MIB, &asked, 0), OK);
    call = told_end();
    EQUAL(call->id, 549);
    told_begin();
    EQUAL(cuMemRelease(physical), OK);
    CHECK(!strcmp(told_end()->name, "cuMemRelease"));
    told_begin();
    EQUAL(cuCtxSynchronize(), OK);
    EQUAL(told_end()->id, 17);
    done(function);
    EQUAL(cuStreamDestroy_v2(stream), OK);
}

static void device_files(void)
{
    struct stat seen;
    EQUAL(access("/dev/nvidia1", F_OK), 0);
    EQUAL(stat("/dev/nvidiactl", &seen), 0);
    CHECK(S_ISCHR(seen.st_mode));
    EQUAL(fstatat(AT_FDCWD, "/dev/nvidia-uvm", &seen, 0), 0);
    static const char *const none[] = {"/dev/nvidia2", "/dev/nvidia", "/dev/nvidia01",
                                       "/dev/nvidia1x", "/dev/nvidia99999999999999999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        EQUAL(stat(none[i], &seen), -1);
        EQUAL(errno, ENOENT);
    }
    EQUAL(stat("/dev", &seen), 0);
    CHECK(S_ISDIR(seen.st_mode));
}

const test_case code_cases[] = {
    {"text_modules", text_modules},
    {"cubins", cubins},
    {"launches", launches},
    {"streams", streams},
    {"entries", entries},
    {"nvml", nvml},
    {"told", told},
    {"device_files", device_files},
    {NULL, NULL},
};
