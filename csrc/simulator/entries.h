/* What the generated entry points (csrc/simulator/tables) are made of. */
#ifndef CM_SIM_ENTRIES_H
#define CM_SIM_ENTRIES_H

#include <complex.h>
#include <stdlib.h>

#include "sim.h"

/* Weak, so that a function written by hand takes its place. */
#define ENTRY CM_SIM_EXPORT __attribute__((weak))

#define REFUSE(name, status)                                                                       \
    ENTRY int name(void)                                                                           \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return cm_sim_refuse(#name, status);                                                       \
    }

static inline int cm_sim_refuse(const char *name, int status)
{
    cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, name, 0);
    return status;
}

/* What a kernel would have written to device memory is not written: it reads as zero. */
#define OUT(type, pointer, value)                                                                  \
    do {                                                                                           \
        if ((pointer) != NULL && !cm_sim_is_device(pointer))                                       \
            *(type *)(pointer) = (value);                                                          \
    } while (0)

/* Larger than any descriptor that a caller could look into. */
enum { CM_SIM_OBJECT = 256 };
#define NEW_OBJECT(pointer)                                                                        \
    ((pointer) != NULL && (*(void **)(pointer) = calloc(1, CM_SIM_OBJECT)) != NULL)
#define NEW_HANDLE(pointer, library)                                                               \
    ((pointer) != NULL && (*(void **)(pointer) = cm_sim_handle_new(library)) != NULL)

#endif
