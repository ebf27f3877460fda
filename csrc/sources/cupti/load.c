/* Finding libcupti. Two copies in one process do not work together, so a loaded copy is always
 * used; otherwise one that is no newer than the CUDA libraries in the process. */
#define _GNU_SOURCE /* dl_iterate_phdr, dladdr, RTLD_DEFAULT */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../base/environment.h"
#include "../loaded.h"
#include "api.h"

enum { PLACES = 24, MAJOR_NEWEST = 19, MAJOR_OLDEST = 11 };

static struct {
    char home[PATH_MAX]; /* $CUDA_HOME, or $CUDA_PATH */
} environment;

void cm_cupti_read_environment(void)
{
    const char *home = cm_environment_get("CUDA_HOME");

    if (home == NULL || home[0] == '\0')
        home = cm_environment_get("CUDA_PATH");
    snprintf(environment.home, sizeof environment.home, "%s", home != NULL ? home : "");
}

/* --- what is loaded ----------------------------------------------------------------------------
 */

typedef struct place {
    char folder[PATH_MAX];
} place;

typedef struct loaded {
    unsigned long long loads;
    bool driver;
    int runtime; /* libcudart's major version, 0: none is there */
    char driver_path[PATH_MAX], cupti_path[PATH_MAX];
    place places[PLACES]; /* where CUDA's and PyTorch's libraries are mapped */
    size_t place_count;
} loaded;

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static void add_place(loaded *all, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash != NULL ? (size_t)(slash - path) : 0;

    if (length == 0 || length >= PATH_MAX || all->place_count == PLACES)
        return;
    for (size_t i = 0; i < all->place_count; i++)
        if (strlen(all->places[i].folder) == length &&
            strncmp(all->places[i].folder, path, length) == 0)
            return;
    place *added = &all->places[all->place_count++];
    memcpy(added->folder, path, length);
    added->folder[length] = '\0';
}

/* Called by dl_iterate_phdr. Copies the paths, for the object may be unloaded afterwards. */
static int see_object(struct dl_phdr_info *info, size_t size, void *context)
{
    loaded *all = context;
    const char *path = info->dlpi_name != NULL ? info->dlpi_name : "";
    const char *name = file_name(path);

    all->loads = info->dlpi_adds;
    if (begins(name, "libcuda.so")) {
        all->driver = true;
        snprintf(all->driver_path, sizeof all->driver_path, "%s", path);
    } else if (begins(name, "libcupti.so") ||
               begins(name, "libcupti-")) { /* the latter: a wheel's copy */
        snprintf(all->cupti_path, sizeof all->cupti_path, "%s", path);
    } else if (begins(name, "libcudart")) {
        const char *version = strstr(name, ".so.");
        if (version != NULL && all->runtime == 0)
            all->runtime = atoi(version + 4);
        add_place(all, path);
    } else if (begins(name, "libc10_cuda.so") || begins(name, "libtorch_cpu.so") ||
               begins(name, "libcublas.so")) {
        add_place(all, path);
    }
    return 0;
}

unsigned long long cm_cupti_loads(void)
{
    return cm_loads_now().loads;
}

/* --- the driver --------------------------------------------------------------------------------
 */

static int see_driver(struct dl_phdr_info *info, size_t size, void *context)
{
    if (info->dlpi_name == NULL || !begins(file_name(info->dlpi_name), "libcuda.so"))
        return 0;
    snprintf(context, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

bool cm_cupti_driver_loaded(void)
{
    char path[PATH_MAX];

    return dl_iterate_phdr(see_driver, path) != 0;
}

static int see_runtime(struct dl_phdr_info *info, size_t size, void *context)
{
    const char *name = info->dlpi_name != NULL ? file_name(info->dlpi_name) : "";

    return begins(name, "libcudart") || begins(name, "libcuda.so");
}

bool cm_cupti_runtime_loaded(void)
{
    return dl_iterate_phdr(see_runtime, NULL) != 0;
}

static void *driver_function(const char *name)
{
    char path[PATH_MAX];
    void *function = NULL;

    if (dl_iterate_phdr(see_driver, path) == 0)
        return NULL;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (handle != NULL) {
        function = dlsym(handle, name);
        dlclose(handle);
    }
    return function;
}

bool cm_cupti_driver_ready(void)
{
    typedef int (*get_current_fn)(void **context);
    static get_current_fn _Atomic known;
    get_current_fn get_current = atomic_load(&known);
    void *context;

    if (get_current == NULL) {
        get_current = (get_current_fn)driver_function("cuCtxGetCurrent");
        atomic_store(&known, get_current);
    }
    /* The one call that does not initialize the driver: error 3 before the program called cuInit.
     */
    return get_current != NULL && get_current(&context) == 0;
}

int cm_cupti_driver_version(void)
{
    typedef int (*get_version_fn)(int *version);
    get_version_fn get_version = (get_version_fn)driver_function("cuDriverGetVersion");
    int version = 0;

    return get_version != NULL && get_version(&version) == 0 ? version : 0;
}

/* --- candidates --------------------------------------------------------------------------------
 */

static void *open_file(const char *path, int more)
{
    return dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE | more);
}

/* false: the path does not fit, and a cut one would be another file. */
static __attribute__((format(printf, 2, 3))) bool make_path(char path[PATH_MAX], const char *format,
                                                            ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(path, PATH_MAX, format, arguments);
    va_end(arguments);
    return length >= 0 && length < PATH_MAX;
}

/* Opens a release's file: "libcupti.so.13"; up to 11 the name contains the minor version. */
static void *open_release(const char *folder, int major, int more)
{
    const char *slash = folder[0] != '\0' ? "/" : "";
    char path[PATH_MAX];
    void *handle = NULL;

    if (major >= 12)
        return make_path(path, "%s%slibcupti.so.%d", folder, slash, major) ? open_file(path, more)
                                                                           : NULL;
    for (int minor = 8; minor >= 0 && handle == NULL; minor--)
        if (make_path(path, "%s%slibcupti.so.%d.%d", folder, slash, major, minor))
            handle = open_file(path, more);
    return handle;
}

static void *open_loaded(const loaded *all)
{
    void *handle = NULL;

    if (all->runtime != 0)
        handle = open_release("", all->runtime, RTLD_NOLOAD);
    for (int major = MAJOR_NEWEST; major >= MAJOR_OLDEST && handle == NULL; major--)
        handle = open_release("", major, RTLD_NOLOAD);
    if (handle == NULL && all->cupti_path[0] != '\0')
        handle = open_file(all->cupti_path, RTLD_NOLOAD);
    return handle;
}

static void *open_in(const char *folder, int newest)
{
    void *handle = NULL;

    for (int major = newest; major >= MAJOR_OLDEST && handle == NULL; major--)
        handle = open_release(folder, major, 0);
    return handle;
}

/* Opens the copy that a wheel installed, starting from the folder of another wheel's library. */
static void *open_beside(const char *folder, int newest)
{
    static const char *const steps[] = {
        "",                             /* nvidia/cu13/lib */
        "/../../cuda_cupti/lib",        /* from nvidia/cuda_runtime/lib */
        "/../../nvidia/cuda_cupti/lib", /* from torch/lib */
    };
    char path[PATH_MAX];
    void *handle = NULL;

    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && handle == NULL; i++)
        if (make_path(path, "%s%s", folder, steps[i]))
            handle = open_in(path, newest);
    for (int major = newest; major >= 13 && handle == NULL; major--)
        if (make_path(path, "%s/../../nvidia/cu%d/lib", folder, major))
            handle = open_release(path, major, 0);
    return handle;
}

static void *open_toolkit(const char *home, int newest)
{
    static const char *const folders[] = {"extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib",
                                          "lib"};
    char path[PATH_MAX];
    void *handle = NULL;

    for (size_t i = 0; home[0] != '\0' && i < sizeof folders / sizeof folders[0] && handle == NULL;
         i++)
        if (make_path(path, "%s/%s", home, folders[i]))
            handle = open_in(path, newest);
    return handle;
}

static void *find(const loaded *all)
{
    /* A CUPTI newer than the driver refuses to start, and one of another major release than the
     * runtime's does not know its functions. */
    int driver = cm_cupti_driver_version() / 1000;
    int newest = all->runtime != 0 ? all->runtime : driver != 0 ? driver : MAJOR_NEWEST;
    void *handle = open_loaded(all);

    for (size_t i = 0; i < all->place_count && handle == NULL; i++)
        handle = open_beside(all->places[i].folder, newest);
    if (handle == NULL)
        handle = open_toolkit(environment.home, newest);
    if (handle == NULL)
        handle = open_toolkit("/usr/local/cuda", newest);
    return handle != NULL ? handle : open_in("", newest);
}

/* --- functions ---------------------------------------------------------------------------------
 */

static void take_functions(cm_cupti_api *api, void *handle)
{
#define TAKE(name) *(void **)&api->name = dlsym(handle, "cupti" #name)
    TAKE(GetVersion);
    TAKE(GetResultString);
    TAKE(GetTimestamp);
    TAKE(Subscribe);
    TAKE(Subscribe_v2);
    TAKE(Unsubscribe);
    TAKE(EnableCallback);
    TAKE(GetDeviceId);
    TAKE(GetContextId);
    TAKE(GetStreamIdEx);
    TAKE(ActivityRegisterCallbacks);
    TAKE(ActivityRegisterCallbacks_v2);
    TAKE(ActivityEnable);
    TAKE(ActivityDisable);
    TAKE(ActivityEnable_v2);
    TAKE(ActivityDisable_v2);
    TAKE(ActivityFlushAll);
    TAKE(ActivityGetNextRecord);
    TAKE(ActivityGetNumDroppedRecords);
    TAKE(ActivityGetAttribute);
    TAKE(ActivitySetAttribute);
    TAKE(ActivityGetAttribute_v2);
    TAKE(ActivitySetAttribute_v2);
    TAKE(ActivityGetNextRecord_v2);
    TAKE(ActivityGetNumDroppedRecords_v2);
    TAKE(GetTimestamp_v2);
    TAKE(ActivityGetStructSize);
    TAKE(ActivityEnableDriverApi);
    TAKE(ActivityEnableRuntimeApi);
    TAKE(ActivityEnableDriverApi_v2);
#undef TAKE
}

static int fitting_major(const loaded *all)
{
    int driver = cm_cupti_driver_version() / 1000;

    return all->runtime != 0 ? all->runtime : driver;
}

bool cm_cupti_load(cm_cupti_api *api, char *why, size_t why_size)
{
    loaded *all = calloc(1, sizeof *all); /* too large for a small thread's stack */
    Dl_info file;

    memset(api, 0, sizeof *api);
    if (all == NULL) {
        snprintf(why, why_size, "no memory for finding libcupti");
        return false;
    }
    dl_iterate_phdr(see_object, all);
    void *handle = find(all);
    if (handle == NULL) {
        int major = fitting_major(all);
        const char *package = major == 11   ? "nvidia-cuda-cupti-cu11"
                              : major == 12 ? "nvidia-cuda-cupti-cu12"
                                            : "nvidia-cuda-cupti";
        snprintf(why, why_size,
                 "no libcupti was found beside CUDA's libraries, in $CUDA_HOME or /usr/local/cuda "
                 "(pip install %s)",
                 package);
        free(all);
        return false;
    }
    free(all);
    take_functions(api, handle);
    if (api->Subscribe == NULL || api->Unsubscribe == NULL || api->EnableCallback == NULL) {
        struct link_map *map = NULL;
        bool named = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL;
        snprintf(why, why_size,
                 "%s has no callback interface: it is no libcupti of CUDA 11 or later",
                 named ? map->l_name : "libcupti");
        return false;
    }
    if (dladdr((void *)api->Subscribe, &file) != 0 && file.dli_fname != NULL)
        snprintf(api->path, sizeof api->path, "%s", file.dli_fname);
    return true;
}
