/* NVRTC is real: it compiles without a device. It opens a second library by a bare name, though,
 * which only some versions of PyTorch make findable; the others load it by its path, together with
 * all the libraries that are simulated here, and so they are kept from doing it (see "libcudart" in
 * cudasim/__init__.py). So it is loaded here: from wherever NVIDIA's other
 * libraries of this process are. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* Of NVIDIA's libraries those that PyTorch is linked to and that are not simulated. */
static const char *const beside[] = {"/libcurand.so.", "/libcufile.so.", "/libnvrtc.so."};

static int find_folder(struct dl_phdr_info *object, size_t size, void *folder)
{
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        const char *name = object->dlpi_name ? strstr(object->dlpi_name, beside[i]) : NULL;
        if (name && name - object->dlpi_name < PATH_MAX) {
            memcpy(folder, object->dlpi_name, (size_t)(name - object->dlpi_name));
            return 1;
        }
    }
    return 0;
}

void cm_sim_nvrtc_prepare(void)
{
    static atomic_bool done;
    char folder[PATH_MAX + 1] = "", pattern[PATH_MAX + 32];
    glob_t found;

    /* No pthread_once: a thread with the linker's lock would wait here for one that waits for that
     * lock. */
    if (atomic_exchange(&done, true) || !dl_iterate_phdr(find_folder, folder))
        return;
    snprintf(pattern, sizeof pattern, "%s/libnvrtc-builtins.so.*", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return; /* then NVRTC reports what is missing, if it is called */
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (!dlopen(found.gl_pathv[i], RTLD_LAZY))
            cm_sim_trace("%s", dlerror());
    globfree(&found);
}
