#include "definitions.h"

#include <stdlib.h>
#include <string.h>

#include "../base/bytes.h"
#include "../base/definition.h"
#include "../base/event.h"
#include "../base/grow.h"
#include "text.h"

bool cm_snap_defs_init(cm_snap_defs *d, const cm_snap *s)
{
    *d = (cm_snap_defs){.snapshot = s, .stacks = CM_STACK_FIRST - 1};
    d->string = calloc(s->texts.count, sizeof *d->string);
    d->name = calloc(s->texts.count, sizeof *d->name);
    d->code = calloc(s->frames.count, sizeof *d->code);
    d->stack = calloc(s->stacks.count, sizeof *d->stack);
    return d->string != NULL && d->name != NULL && d->code != NULL && d->stack != NULL;
}

void cm_snap_defs_clear(cm_snap_defs *d)
{
    free(d->record);
    cm_idmap_clear(&d->child);
    free(d->string);
    free(d->name);
    free(d->code);
    free(d->stack);
    *d = (cm_snap_defs){0};
}

const void *cm_snap_defs_take(cm_snap_defs *d, size_t *length)
{
    *length = d->length;
    d->length = 0;
    return d->record;
}

/* Room for a record of so many bytes and eight numbers; NULL: out of memory. */
static uint8_t *make_room(cm_snap_defs *d, size_t length)
{
    if (!cm_grow((void **)&d->record, &d->capacity, d->length + length + 96, 1))
        return NULL;
    return d->record + d->length;
}

static bool put_text(cm_snap_defs *d, cm_def_kind kind, uint32_t text)
{
    size_t length;
    const char *bytes = cm_snap_text(d->snapshot, text, &length);
    uint8_t *p = make_room(d, length);
    if (p == NULL)
        return false;
    *p++ = (uint8_t)kind;
    p = cm_put_bytes(p, bytes, length);
    d->length = (size_t)(p - d->record);
    return true;
}

static bool string_of(cm_snap_defs *d, uint32_t text, uint32_t *id)
{
    if (d->string[text] == 0) {
        if (!put_text(d, CM_DEF_STRING, text))
            return false;
        d->string[text] = ++d->strings;
    }
    *id = d->string[text];
    return true;
}

bool cm_snap_defs_name(cm_snap_defs *d, uint32_t text, uint32_t *id)
{
    if (d->name[text] == 0) {
        if (!put_text(d, CM_DEF_NAME, text))
            return false;
        d->name[text] = ++d->names;
    }
    *id = d->name[text];
    return true;
}

/* One code for each line: a location table of one entry, without columns, says which. */
static bool code_of(cm_snap_defs *d, uint32_t frame, uint32_t *id)
{
    static const uint8_t table[] = {0x80 | 13 << 3, 0};
    const cm_snap_frame *f = cm_snap_frame_at(d->snapshot, frame);
    uint32_t file, name;
    *id = d->code[frame];
    if (*id != 0)
        return true;
    if (!string_of(d, f->file, &file) || !string_of(d, f->name, &name))
        return false;
    uint8_t *p = make_room(d, sizeof table);
    if (p == NULL)
        return false;
    *p++ = CM_DEF_CODE;
    p = cm_put_varint(p, file);
    p = cm_put_varint(p, name);
    p = cm_put_varint(p, f->line > 0 ? (uint64_t)f->line : 0);
    p = cm_put_bytes(p, table, sizeof table);
    d->length = (size_t)(p - d->record);
    *id = d->code[frame] = ++d->codes;
    return true;
}

static bool put_stack(cm_snap_defs *d, uint32_t parent, uint32_t code)
{
    uint8_t *p = make_room(d, 0);
    if (p == NULL)
        return false;
    *p++ = CM_DEF_STACK;
    p = cm_put_varint(p, parent);
    p = cm_put_varint(p, code);
    p = cm_put_varint(p, 0);
    p = cm_put_varint(p, 0);
    p = cm_put_varint(p, 0);
    p = cm_put_varint(p, 0);
    d->length = (size_t)(p - d->record);
    return true;
}

static bool add_frame(cm_snap_defs *d, uint32_t frame, uint32_t *stack)
{
    uint64_t key = (uint64_t)*stack << 32 | frame;
    uint32_t code;
    if (cm_idmap_get(&d->child, key, stack))
        return true;
    if (!code_of(d, frame, &code) || !put_stack(d, *stack, code) ||
        !cm_idmap_put(&d->child, key, ++d->stacks))
        return false;
    *stack = d->stacks;
    return true;
}

bool cm_snap_is_exported(const cm_snap *s, uint32_t frame)
{
    const cm_snap_frame *f = cm_snap_frame_at(s, frame);
    size_t length;
    const char *file = cm_snap_text(s, f->file, &length);
    return s->exporter != 0 && f->line == 0 && length == 8 &&
           (memcmp(file, "backward", length) == 0 || memcmp(file, "operator", length) == 0);
}

static bool is_source_of_c(const char *file, size_t length)
{
    static const char *const ends[] = {".cpp", ".cc", ".c",   ".cu",  ".h",   ".hpp",
                                       ".cxx", ".S",  ".inl", ".cuh", ".ipp", ".tcc"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (cm_ends(file, length, ends[i]))
            return true;
    return false;
}

/* Of the interpreter: .../bin/python3.11 */
static bool is_interpreter(const char *file, size_t length)
{
    size_t base = length;
    while (base > 0 && file[base - 1] != '/')
        base--;
    return base > 0 && cm_begins(file + base, length - base, "python");
}

/* PyTorch's unwinder gives the source where it knows it, else the shared library, the program or
 * the object that was linked ("thread48.o"), and "??" for what it does not know. No name of
 * Python's has a bracket or a double colon. */
bool cm_snap_is_native(const cm_snap *s, uint32_t frame)
{
    const cm_snap_frame *f = cm_snap_frame_at(s, frame);
    size_t length, name_length;
    const char *file = cm_snap_text(s, f->file, &length);
    if (length == 0 || cm_snap_is_exported(s, frame))
        return true;
    if (cm_ends(file, length, ".py"))
        return false;
    const char *name = cm_snap_text(s, f->name, &name_length);
    return cm_ends(file, length, "??") || cm_ends(name, name_length, "??") ||
           is_source_of_c(file, length) || is_interpreter(file, length) ||
           cm_ends(file, length, ".so") || cm_contains(file, length, ".so.") ||
           cm_ends(file, length, ".o") || cm_contains(name, name_length, "::") ||
           cm_contains(name, name_length, "(");
}

bool cm_snap_defs_outer(cm_snap_defs *d, uint32_t stack, size_t inner, uint32_t *id)
{
    size_t count;
    const uint32_t *frame = cm_snap_frames(d->snapshot, stack, &count);
    *id = CM_STACK_NONE;
    for (size_t i = count; i > inner; i--)
        if (!cm_snap_is_native(d->snapshot, frame[i - 1]) && !add_frame(d, frame[i - 1], id))
            return false;
    return true;
}

bool cm_snap_defs_stack(cm_snap_defs *d, uint32_t stack, uint32_t *id)
{
    /* 0 and 1 are no ids of stacks that were defined. */
    if (d->stack[stack] == 0) {
        if (!cm_snap_defs_outer(d, stack, 0, id))
            return false;
        d->stack[stack] = *id + 1;
    }
    *id = d->stack[stack] - 1;
    return true;
}
