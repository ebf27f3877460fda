#include "defs_copy.h"

#include <string.h>

#include "../base/bytes.h"
#include "format.h"
#include "../base/hash.h"
#include "lines.h"
#include "../base/grow.h"
#include "../base/idmap.h"

typedef struct code {
    cm_frame frame; /* its position */
    uint32_t id;
} code;

typedef struct ids { /* old id -> new id, 0 = not yet */
    uint32_t *id;
    size_t capacity;
} ids;

struct cm_defs_copy {
    const cm_reader *reader;
    uint8_t *record;
    size_t length, capacity;
    cm_idmap strings, codes; /* address of the string; hash of the place -> index of code */
    code *code;
    size_t code_count, code_capacity;
    ids stacks, names;
    uint32_t string_count, stack_count, name_count;
    uint32_t *chain;
    size_t chain_capacity;
    bool taken;
    cm_lines *lines;
};

cm_defs_copy *cm_defs_copy_new(const cm_reader *reader)
{
    cm_defs_copy *d = calloc(1, sizeof *d);
    if (d == NULL)
        return NULL;
    d->reader = reader;
    d->lines = cm_lines_new();
    if (d->lines != NULL)
        return d;
    cm_defs_copy_free(d);
    return NULL;
}

void cm_defs_copy_free(cm_defs_copy *d)
{
    if (d == NULL)
        return;
    free(d->record);
    cm_lines_free(d->lines);
    cm_idmap_clear(&d->strings);
    cm_idmap_clear(&d->codes);
    free(d->code);
    free(d->stacks.id);
    free(d->names.id);
    free(d->chain);
    free(d);
}

const void *cm_defs_copy_take(cm_defs_copy *d, size_t *length)
{
    *length = d->length;
    d->taken = true;
    return d->record;
}

bool cm_defs_copy_take_lines(cm_defs_copy *d, const void **chunk, size_t *length)
{
    return cm_lines_finish(d->lines, chunk, length);
}

/* Makes room for a record of `length` bytes and eight numbers; NULL: out of memory. */
static uint8_t *make_room(cm_defs_copy *d, size_t length)
{
    if (d->taken)
        d->length = 0;
    d->taken = false;
    if (length > SIZE_MAX / 2 ||
        !cm_grow((void **)&d->record, &d->capacity, d->length + length + 96, 1))
        return NULL;
    return d->record + d->length;
}

static uint32_t *slot_of(ids *map, uint32_t old)
{
    size_t before = map->capacity;
    if (!cm_grow((void **)&map->id, &map->capacity, (size_t)old + 1, sizeof *map->id))
        return NULL;
    if (map->capacity > before)
        memset(map->id + before, 0, (map->capacity - before) * sizeof *map->id);
    return &map->id[old];
}

static bool put_text(cm_defs_copy *d, cm_def_kind kind, const char *text)
{
    size_t length = strlen(text);
    uint8_t *p = make_room(d, length);
    if (p == NULL)
        return false;
    *p++ = (uint8_t)kind;
    p = cm_put_bytes(p, text, length);
    d->length = (size_t)(p - d->record);
    return true;
}

static bool define_string(cm_defs_copy *d, const char *text, uint32_t *id)
{
    *id = 0;
    if (text == NULL)
        return true;
    uint64_t key = (uint64_t)(uintptr_t)text; /* equal addresses are equal strings */
    if (cm_idmap_get(&d->strings, key, id))
        return true;
    if (!put_text(d, CM_DEF_STRING, text) || !cm_idmap_put(&d->strings, key, d->string_count + 1))
        return false;
    *id = ++d->string_count;
    return true;
}

bool cm_defs_copy_name(cm_defs_copy *d, uint32_t name, uint32_t *id)
{
    const char *text = cm_reader_name(d->reader, name);
    *id = 0;
    if (name == 0 || text == NULL)
        return true;
    uint32_t *slot = slot_of(&d->names, name);
    if (slot == NULL)
        return false;
    if (*slot == 0) {
        if (!put_text(d, CM_DEF_NAME, text))
            return false;
        *slot = ++d->name_count;
    }
    *id = *slot;
    return true;
}

/* --- location tables: six bits a byte, as CPython writes them ------------------------------ */

static uint8_t *put_position_varint(uint8_t *p, uint32_t value)
{
    while (value >= 64) {
        *p++ = 0x40 | (value & 63);
        value >>= 6;
    }
    *p++ = (uint8_t)value;
    return p;
}

static size_t write_table(uint8_t *table, const cm_frame *f)
{
    enum { LONG_FORM = 14, NO_LOCATION = 15 };
    uint8_t *p = table;
    if (f->line < 0) {
        *p++ = 0x80 | NO_LOCATION << 3;
        return 1;
    }
    int64_t delta = (int64_t)f->line - f->first_line;
    uint32_t distance = (uint32_t)(delta < 0 ? -delta : delta);
    *p++ = 0x80 | LONG_FORM << 3;
    p = put_position_varint(p, distance << 1 | (delta < 0));
    p = put_position_varint(p, f->end_line > f->line ? (uint32_t)(f->end_line - f->line) : 0);
    p = put_position_varint(p, (uint32_t)(f->column + 1));
    p = put_position_varint(p, (uint32_t)(f->end_column + 1));
    return (size_t)(p - table);
}

static bool same_place(const cm_frame *a, const cm_frame *b)
{
    return a->code == b->code && a->line == b->line && a->end_line == b->end_line &&
           a->column == b->column && a->end_column == b->end_column;
}

static bool define_code(cm_defs_copy *d, const cm_frame *f, uint32_t *id)
{
    uint64_t key = cm_hash(cm_hash((uint64_t)f->code << 32 | (uint32_t)f->line) +
                           ((uint64_t)(uint32_t)f->column << 32 | (uint32_t)f->end_column)) >>
                   1;
    uint32_t found;
    for (; cm_idmap_get(&d->codes, key, &found);
         key++) /* skips other positions with the same hash */
        if (same_place(&d->code[found].frame, f)) {
            *id = d->code[found].id;
            return true;
        }
    uint32_t file, function;
    uint8_t table[64] = {0};
    if (!define_string(d, f->file ? f->file : "", &file) ||
        !define_string(d, f->function ? f->function : "", &function) ||
        !cm_grow((void **)&d->code, &d->code_capacity, d->code_count + 1, sizeof *d->code))
        return false;
    uint8_t *p = make_room(d, sizeof table);
    if (p == NULL || !cm_idmap_put(&d->codes, key, (uint32_t)d->code_count))
        return false;
    *p++ = CM_DEF_CODE;
    p = cm_put_varint(p, file);
    p = cm_put_varint(p, function);
    p = cm_put_varint(p, (uint32_t)f->first_line);
    p = cm_put_bytes(p, table, write_table(table, f));
    d->length = (size_t)(p - d->record);
    d->code[d->code_count] = (code){*f, (uint32_t)d->code_count + 1};
    *id = d->code[d->code_count++].id;
    return f->text == NULL ||
           cm_lines_add(d->lines, *id, (uint32_t)f->line, f->text, strlen(f->text)) != 0;
}

static bool define_frame(cm_defs_copy *d, uint32_t stack, uint32_t parent)
{
    cm_frame f = {.truncated = true};
    uint32_t code = 0, class_name;
    cm_reader_stack_frame(d->reader, stack,
                          &f); /* if unknown, the frame becomes a truncated root */
    uint32_t flags = f.truncated ? CM_DEFF_TRUNCATED : 0;
    if (f.module == 0 && f.module_class != NULL)
        flags |= CM_DEFF_COLLAPSED;
    if (!f.truncated && !define_code(d, &f, &code))
        return false;
    uint32_t *slot = slot_of(&d->stacks, stack);
    if (slot == NULL || !define_string(d, f.module_class, &class_name))
        return false;
    uint8_t *p = make_room(d, 0);
    if (p == NULL)
        return false;
    *p++ = CM_DEF_STACK;
    p = cm_put_varint(p, parent);
    p = cm_put_varint(p, code);
    p = cm_put_varint(p, 0);
    p = cm_put_varint(p, flags);
    p = cm_put_varint(p, f.module);
    p = cm_put_varint(p, class_name);
    d->length = (size_t)(p - d->record);
    *slot = CM_STACK_FIRST + d->stack_count++;
    return true;
}

bool cm_defs_copy_stack(cm_defs_copy *d, uint32_t stack, uint32_t *id)
{
    size_t depth = 0;
    *id = stack;
    /* From the first frame that is already defined, inwards. */
    for (uint32_t at = stack; at >= CM_STACK_FIRST;) {
        uint32_t *slot = slot_of(&d->stacks, at);
        if (slot == NULL)
            return false;
        if (*slot != 0)
            break;
        if (!cm_grow((void **)&d->chain, &d->chain_capacity, depth + 1, sizeof *d->chain))
            return false;
        d->chain[depth++] = at;
        uint32_t parent = cm_reader_stack_parent(d->reader, at);
        at = parent < at ? parent : CM_STACK_NONE;
    }
    while (depth-- > 0) {
        uint32_t at = d->chain[depth], parent = cm_reader_stack_parent(d->reader, at);
        parent = parent >= CM_STACK_FIRST && parent < at ? d->stacks.id[parent] : CM_STACK_NONE;
        if (!define_frame(d, at, parent))
            return false;
    }
    if (stack >= CM_STACK_FIRST)
        *id = d->stacks.id[stack];
    return true;
}
