#include "moved.h"

#include <string.h>

#include "../base/moved.h"
#include "definitions.h"
#include "text.h"

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
    return caller == NULL ? 0 : cm_moved_at(f->line, caller->line);
}
