/* Copying the dynamic loader's list of objects.
 *
 * The loader calls back with its lock held. A tool that intercepts malloc may hold its own lock
 * while it waits for the loader's. So a callback does not allocate, lock or print: objects are
 * counted, memory is allocated outside, and they are counted again. */
#ifndef CM_SOURCES_LOADED_H
#define CM_SOURCES_LOADED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "elf.h"

/* How often objects were loaded and unloaded; equal counts mean the same objects. */
typedef struct cm_loads {
    unsigned long long loads, unloads;
} cm_loads;

/* Any thread; waits for the loader's lock. */
cm_loads cm_loads_now(void);

typedef struct cm_loaded_object {
    const char *path; /* "" for the program itself */
    uintptr_t base;
    const cm_elf_header *headers; /* to be read only while the object is known to be mapped */
    unsigned header_count;
    size_t code, code_end; /* its executable segments in cm_loaded.code */
} cm_loaded_object;

typedef struct cm_loaded_code {
    uintptr_t start, end;
} cm_loaded_code;

/* Initialized to zero; may be filled repeatedly. */
typedef struct cm_loaded {
    cm_loads counts;
    cm_loaded_object *object;
    cm_loaded_code *code;
    char *paths;
    size_t count, code_count, path_bytes; /* found */
    size_t room, code_room, path_room;    /* allocated */
} cm_loaded;

/* False: no memory. */
bool cm_loaded_list(cm_loaded *list);
void cm_loaded_free(cm_loaded *list);

#endif
