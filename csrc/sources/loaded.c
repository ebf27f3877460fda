#define _GNU_SOURCE /* dl_iterate_phdr */
#include "loaded.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

static int read_counts(struct dl_phdr_info *info, size_t size, void *context)
{
    *(cm_loads *)context = (cm_loads){info->dlpi_adds, info->dlpi_subs};
    return 1;
}

cm_loads cm_loads_now(void)
{
    cm_loads now = {0};

    dl_iterate_phdr(read_counts, &now);
    return now;
}

static bool is_code(const cm_elf_header *header)
{
    return header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0;
}

/* Counts an object, and copies it if there is room. */
static int copy_object(struct dl_phdr_info *info, size_t size, void *context)
{
    cm_loaded *list = context;
    const char *path = info->dlpi_name != NULL ? info->dlpi_name : "";
    size_t length = strlen(path) + 1, code = list->code_count;

    list->counts = (cm_loads){info->dlpi_adds, info->dlpi_subs};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const cm_elf_header *header = &info->dlpi_phdr[i];
        if (!is_code(header))
            continue;
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (list->code_count < list->code_room)
            list->code[list->code_count] = (cm_loaded_code){start, start + header->p_memsz};
        list->code_count++;
    }
    if (list->path_bytes + length <= list->path_room)
        memcpy(list->paths + list->path_bytes, path, length);
    if (list->count < list->room)
        list->object[list->count] = (cm_loaded_object){
            .path = list->paths + list->path_bytes,
            .base = info->dlpi_addr,
            .headers = info->dlpi_phdr,
            .header_count = info->dlpi_phnum,
            .code = code,
            .code_end = list->code_count,
        };
    list->path_bytes += length;
    list->count++;
    return 0;
}

/* Allocates room for what was counted, and for some objects that are loaded meanwhile. */
static bool make_room(cm_loaded *list)
{
    cm_loaded larger = {.room = list->count + 16,
                        .code_room = list->code_count + 32,
                        .path_room = list->path_bytes + 4096};

    cm_loaded_free(list);
    larger.object = malloc(larger.room * sizeof *larger.object);
    larger.code = malloc(larger.code_room * sizeof *larger.code);
    larger.paths = malloc(larger.path_room);
    *list = larger;
    if (list->object != NULL && list->code != NULL && list->paths != NULL)
        return true;
    cm_loaded_free(list);
    return false;
}

bool cm_loaded_list(cm_loaded *list)
{
    for (;;) {
        list->count = list->code_count = list->path_bytes = 0;
        dl_iterate_phdr(copy_object, list);
        if (list->count <= list->room && list->code_count <= list->code_room &&
            list->path_bytes <= list->path_room)
            return true;
        if (!make_room(list))
            return false;
    }
}

void cm_loaded_free(cm_loaded *list)
{
    free(list->object);
    free(list->code);
    free(list->paths);
    *list = (cm_loaded){0};
}
