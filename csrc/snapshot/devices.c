#include "devices.h"

#include <stdlib.h>
#include <string.h>

#include "../base/event.h"
#include "definitions.h"
#include "history.h"

/* The device of a number, as a snapshot that cuptimem wrote names it: "0 is cuda:0, 1 is cpu". */
static bool find_name(const cm_snap *s, uint32_t id, int32_t number, char *name, size_t size)
{
    size_t length;
    const char *text = cm_snap_text(s, id, &length), *end = text + length;
    while (text < end) {
        char *rest;
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *to = comma != NULL ? comma : end;
        char one[64] = "";
        size_t n = (size_t)(to - text);
        memcpy(one, text, n < sizeof one - 1 ? n : sizeof one - 1);
        long is = strtol(one, &rest, 10);
        if (is == number && strncmp(rest, " is ", 4) == 0 && strlen(rest + 4) < size) {
            strcpy(name, rest + 4);
            return true;
        }
        text = to + 2;
    }
    return false;
}

static void name_device(const cm_snap *s, cm_snap_device *d)
{
    static const struct {
        const char *name;
        uint8_t type;
    } types[] = {{"cpu", CM_DEVICE_CPU},
                 {"cuda", CM_DEVICE_CUDA},
                 {"hip", CM_DEVICE_HIP},
                 {"xpu", CM_DEVICE_XPU},
                 {"mtia", 19},
                 {"privateuseone", 20},
                 {"pinned", CM_DEVICE_PINNED}};
    char name[32];
    d->type = s->from_xpu ? CM_DEVICE_XPU : CM_DEVICE_CUDA;
    d->index = (int8_t)d->number;
    d->unreported = s->unreported != 0 && find_name(s, s->unreported, d->number, name, sizeof name);
    if (s->devices == 0 || !find_name(s, s->devices, d->number, name, sizeof name))
        return;
    char *colon = strchr(name, ':');
    d->index = -1;
    if (colon != NULL) {
        *colon = '\0';
        d->index = (int8_t)(strtol(colon + 1, NULL, 10) & 127);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].name) == 0)
            d->type = types[i].type;
}

static bool is_used(const cm_snap *s, int32_t number, cm_snap_range events)
{
    if (events.first < events.end)
        return true;
    for (uint32_t i = s->all_segments.first; i < s->all_segments.end; i++)
        if (s->segment[i].device == number)
            return true;
    return false;
}

static bool fits(const cm_snap *s)
{
    for (uint32_t i = s->all_segments.first; i < s->all_segments.end; i++)
        if (s->segment[i].device < 0 || s->segment[i].device >= CM_SNAP_DEVICES_MAX - 1)
            return false;
    for (uint32_t i = s->device_traces.first; i < s->device_traces.end; i++)
        if (i - s->device_traces.first >= CM_SNAP_DEVICES_MAX - 1 &&
            s->trace[i].first < s->trace[i].end)
            return false;
    return true;
}

size_t cm_snap_devices(const cm_snap *s, cm_snap_device *device)
{
    size_t count = 0;
    uint32_t traces = s->device_traces.end - s->device_traces.first;
    if (!fits(s))
        return SIZE_MAX;
    for (uint32_t i = 0; i < CM_SNAP_DEVICES_MAX - 1; i++) {
        cm_snap_range events = {0};
        if (i < traces)
            events = s->trace[s->device_traces.first + i];
        if (!is_used(s, (int32_t)i, events))
            continue;
        device[count] =
            (cm_snap_device){.number = (int32_t)i, .segments = s->all_segments, .events = events};
        name_device(s, &device[count++]);
    }
    if (s->host_events.first < s->host_events.end || s->host_segments.first < s->host_segments.end)
        device[count++] = (cm_snap_device){.type = CM_DEVICE_PINNED,
                                           .index = -1,
                                           .number = CM_SNAP_ANY_DEVICE,
                                           .segments = s->host_segments,
                                           .events = s->host_events};
    return count;
}
