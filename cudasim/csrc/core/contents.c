/* Copies and memsets, as far as their bytes mean something. */
#include <string.h>

#include "known.h"
#include "memory.h"

typedef struct place {
    bool device;
    bool there; /* all of it may be accessed */
    int number; /* of the device */
} place;

static place place_of(const void *address, size_t bytes, bool write)
{
    place found = {.device = cm_sim_is_device(address), .number = -1};

    found.there = !found.device || cm_sim_reach(address, bytes, write, &found.number);
    return found;
}

/* What one call reads from a device, over all its rows. */
typedef struct reading {
    const void *address; /* of the first row with a simulated byte, else of the first one */
    size_t bytes, simulated;
    int device;
} reading;

/* keep: the contents of what the host sends are kept. */
static void copy_row(char *to, const char *from, size_t bytes, bool keep, reading *reads)
{
    place target = place_of(to, bytes, true), source = place_of(from, bytes, false);

    if (!target.there || !source.there) {
        cm_sim_note(CM_SIM_NOTE_REFUSED, "copy outside of device memory", bytes);
        if (!target.device)
            memset(to, 0, bytes);
    } else if (target.device && source.device) {
        cm_sim_known_carry((uintptr_t)to, (uintptr_t)from, bytes, keep);
    } else if (target.device) {
        if (keep)
            cm_sim_known_write((uintptr_t)to, from, bytes);
        else
            cm_sim_known_forget((uintptr_t)to, bytes);
    } else if (source.device) {
        size_t simulated = bytes - cm_sim_known_read(to, (uintptr_t)from, bytes);
        if (reads->bytes == 0 || (reads->simulated == 0 && simulated > 0))
            reads->address = from;
        reads->bytes += bytes;
        reads->simulated += simulated;
        reads->device = source.number;
    } else {
        memmove(to, from, bytes);
    }
}

void cm_sim_copy(void *to, const void *from, size_t bytes)
{
    reading reads = {0};

    if (bytes == 0 || to == from)
        return;
    copy_row(to, from, bytes, bytes <= cm_sim_config_get()->copy_max, &reads);
    if (reads.bytes > 0)
        cm_sim_report_read(reads.address, reads.bytes, reads.simulated, reads.device);
}

void cm_sim_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t height)
{
    reading reads = {0};

    if (width == 0 || height == 0)
        return;
    if (height == 1 || (to_pitch == width && from_pitch == width)) {
        cm_sim_copy(to, from, width * height);
        return;
    }
    bool keep = width <= cm_sim_config_get()->copy_max / height;
    for (size_t row = 0; row < height; row++)
        copy_row((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, keep,
                 &reads);
    if (reads.bytes > 0)
        cm_sim_report_read(reads.address, reads.bytes, reads.simulated, reads.device);
}

void cm_sim_set(void *to, int value, size_t bytes)
{
    place target = place_of(to, bytes, true);

    if (bytes == 0)
        return;
    if (!target.there)
        cm_sim_note(CM_SIM_NOTE_REFUSED, "memset outside of device memory", bytes);
    else if (!target.device)
        memset(to, value, bytes);
    else if ((value & 0xff) == 0)
        cm_sim_known_zero((uintptr_t)to, bytes);
    else if (bytes <= cm_sim_config_get()->copy_max)
        cm_sim_known_fill((uintptr_t)to, value, bytes);
    else
        cm_sim_known_forget((uintptr_t)to, bytes);
}

void cm_sim_fresh(void *address, size_t bytes)
{
    place at = place_of(address, bytes, true);

    if (bytes > 0 && at.device && at.there)
        cm_sim_known_forget((uintptr_t)address, bytes);
}
