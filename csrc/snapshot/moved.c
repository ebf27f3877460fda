#include "moved.h"

#include <string.h>

#include "../base/event.h"
#include "definitions.h"
#include "text.h"

/* Lines of torch/nn/modules/module.py. _apply moves parameters, their gradients and buffers, each
 * in a line of its own; the line that called it tells versions apart in which two of these are one
 * number. */
typedef struct version {
    int32_t children, parameter, buffer; /* in _apply: of submodules, then its calls of fn */
    int32_t cuda, to;                    /* their calls of _apply */
} version;

static const version versions[] = {
    {780, 805, 854, 916, 1174},   /* 2.4 */
    {900, 927, 988, 1050, 1340},  /* 2.5 */
    {903, 930, 991, 1053, 1343},  /* 2.6 */
    {915, 942, 1003, 1065, 1355}, /* 2.7 */
    {928, 955, 1020, 1082, 1369}, /* 2.8 */
    {930, 957, 1022, 1084, 1371}, /* 2.9 */
    {933, 964, 1031, 1093, 1381}, /* 2.10 */
    {934, 965, 1035, 1097, 1384}, /* 2.11 */
    {933, 964, 1034, 1096, 1383}, /* 2.12, 2.13 */
    {933, 966, 1036, 1098, 1388}, /* 2.14 */
    {933, 966, 1036, 1098, 1392}, /* 2.15 */
};

static bool is_named(const cm_snap *s, const cm_snap_frame *f, const char *name)
{
    size_t length;
    const char *text = cm_snap_text(s, f->name, &length);
    return length == strlen(name) && memcmp(text, name, length) == 0;
}

/* NULL: the frame is another file's. */
static const cm_snap_frame *in_module(const cm_snap *s, uint32_t frame)
{
    const cm_snap_frame *f = cm_snap_frame_at(s, frame);
    size_t length;
    const char *file = cm_snap_text(s, f->file, &length);
    return cm_ends(file, length, "torch/nn/modules/module.py") ? f : NULL;
}

static uint8_t moved_at(int32_t line, int32_t caller)
{
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        const version *v = &versions[i];
        if (caller != v->children && caller != v->cuda && caller != v->to)
            continue;
        if (line == v->parameter)
            return CM_LABEL_MOVED_PARAMETER;
        if (line == v->buffer)
            return CM_LABEL_MOVED_BUFFER;
    }
    return 0;
}

/* The next frame of Python's outside of the *at inner ones. */
static const uint32_t *next_frame(const cm_snap *s, const uint32_t *frame, size_t count, size_t *at)
{
    while (*at < count && cm_snap_is_native(s, frame[*at]))
        ++*at;
    return *at < count ? &frame[(*at)++] : NULL;
}

/* Innermost is what moves one tensor, then _apply; a class may have its own _apply around it. */
uint8_t cm_snap_moved(const cm_snap *s, uint32_t stack)
{
    size_t count, at = 0;
    const uint32_t *frames = cm_snap_frames(s, stack, &count);
    const uint32_t *frame = next_frame(s, frames, count, &at);
    const cm_snap_frame *f = frame == NULL ? NULL : in_module(s, *frame);
    if (f == NULL || !(is_named(s, f, "convert") || is_named(s, f, "<lambda>")))
        return 0;
    frame = next_frame(s, frames, count, &at);
    f = frame == NULL ? NULL : in_module(s, *frame);
    if (f == NULL || !is_named(s, f, "_apply"))
        return 0;
    const cm_snap_frame *caller = NULL;
    while (caller == NULL && (frame = next_frame(s, frames, count, &at)) != NULL)
        caller = in_module(s, *frame);
    return caller == NULL ? 0 : moved_at(f->line, caller->line);
}
