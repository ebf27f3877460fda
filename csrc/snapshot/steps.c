#include "steps.h"

#include <string.h>

#include "../base/grow.h"
#include "definitions.h"
#include "text.h"

/* "Optimizer.step#AdamW.step" */
static bool is_step(const cm_snap *s, const cm_snap_note *note)
{
    size_t length;
    const char *name = cm_snap_text(s, note->name, &length);
    return note->stage == CM_SAYS_END && cm_begins(name, length, "Optimizer.step#");
}

static int by_time(const void *a, const void *b)
{
    const cm_snap_tick *one = a, *other = b;
    return (one->time_us > other->time_us) - (one->time_us < other->time_us);
}

bool cm_snap_steps_noted(const cm_snap *s, cm_snap_tick **ticks, size_t *count)
{
    size_t capacity = 0;
    *ticks = NULL;
    *count = 0;
    for (uint32_t i = s->annotations.first; i < s->annotations.end; i++) {
        const cm_snap_note *note = &s->note[i];
        if (!is_step(s, note))
            continue;
        if (!cm_grow((void **)ticks, &capacity, *count + 1, sizeof **ticks))
            return false;
        (*ticks)[(*count)++] = (cm_snap_tick){note->time_us, note->name};
    }
    cm_sort(*ticks, *count, sizeof **ticks, by_time);
    return true;
}

/* PyTorch wraps the step of every optimizer, also of other packages'. Those that it does not know
 * have a step of their own in a file that says so. */
static bool is_step_frame(const cm_snap *s, uint32_t frame)
{
    const cm_snap_frame *f = cm_snap_frame_at(s, frame);
    size_t length, name_length;
    const char *file = cm_snap_text(s, f->file, &length);
    const char *name = cm_snap_text(s, f->name, &name_length);
    if (cm_ends(file, length, "torch/optim/optimizer.py"))
        return cm_ends(name, name_length, "wrapper");
    bool step = cm_ends(name, name_length, ".step") ||
                (name_length == 4 && name[0] == 's' && cm_ends(name, name_length, "step"));
    return step && cm_contains(file, length, "optim") && !cm_ends(file, length, "lr_scheduler.py");
}

size_t cm_snap_step_depth(const cm_snap *s, uint32_t stack)
{
    size_t count;
    const uint32_t *frame = cm_snap_frames(s, stack, &count);
    for (size_t i = count; i > 0; i--)
        if (is_step_frame(s, frame[i - 1]))
            return i;
    return 0;
}
