/* What the generated entry points (cudasim/tables) are made of. */
#ifndef CM_SIM_ENTRIES_H
#define CM_SIM_ENTRIES_H

#include <complex.h>
#include <stdlib.h>

#include "../core/sim.h"

/* Weak, so that a function written by hand takes its place. */
#define ENTRY CM_SIM_EXPORT __attribute__((weak))

/* Most functions do nothing or are refused: there are thousands, so what they do is out of line. */
static __attribute__((noinline, unused)) int nothing(void)
{
    CM_SIM_ENTRY;
    return 0;
}

static __attribute__((noinline, unused)) int refuse(const char *name, int status)
{
    CM_SIM_ENTRY;
    cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, name, 0);
    return status;
}

#define NOTHING(name)                                                                              \
    ENTRY int name(void)                                                                           \
    {                                                                                              \
        return nothing();                                                                          \
    }
#define REFUSE(name, status)                                                                       \
    ENTRY int name(void)                                                                           \
    {                                                                                              \
        return refuse(#name, status);                                                              \
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
