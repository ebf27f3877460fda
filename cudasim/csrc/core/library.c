/* What a library's handle takes of the device for itself.
 *
 * The numbers are allowances, not measurements: none are published, and they differ by version and
 * device. Each library that takes some is named in the report, with its sum. PyTorch hands cuBLAS,
 * cuBLASLt and cuSPARSELt their workspaces itself: those are in its own numbers. */
#include <stdlib.h>
#include <strings.h>

#include "sim.h"

#define MIB ((size_t)1 << 20)

static const struct {
    const char *library;
    size_t bytes;
} takes[] = {
    {"cuBLAS", 8 * MIB},
    {"cuDNN", 8 * MIB},
    {"cuSOLVER", 8 * MIB},
    {"cuSPARSE", 2 * MIB},
}; /* the others: nothing */

typedef struct handle {
    const char *library;
    void *memory; /* of the device; NULL: none */
    _Alignas(16) unsigned char body[CM_SIM_HANDLE];
} handle;

static size_t bytes_of(const char *library)
{
    int64_t asked = cm_sim_config_get()->handle_bytes;

    if (asked >= 0)
        return (size_t)asked;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        if (strcasecmp(takes[i].library, library) == 0)
            return takes[i].bytes;
    return 0;
}

void *cm_sim_handle_new(const char *library)
{
    handle *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->library = library;
    if (cm_sim_library_take(library, bytes_of(library), &made->memory) != CM_SIM_OK) {
        free(made);
        return NULL;
    }
    /* cppcheck-suppress memleak ; cm_sim_handle_free finds it from its body */
    return made->body;
}

void cm_sim_handle_free(void *body)
{
    if (body == NULL)
        return;
    handle *gone = (handle *)((char *)body - offsetof(handle, body));
    cm_sim_library_give(gone->library, gone->memory);
    free(gone);
}
