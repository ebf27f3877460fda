#include "defs.h"

#include <stdlib.h>
#include <string.h>

#include "../base/event.h"
#include "../base/bytes.h"
#include "format.h"
#include "../base/hash.h"
#include "../base/table.h"

enum {
    ARENA_BLOCK = 64 * 1024,
    MARK_EVERY = 64 /* entries of a location table; a search passes at most this many */
};

typedef struct arena_block {
    struct arena_block *next;
    size_t used, size;
    uint8_t bytes[];
} arena_block;

typedef struct array {
    void *items;
    uint32_t count, capacity;
} array;

typedef struct source_line {
    const char *text; /* NULL: an empty slot */
    uint32_t code, line;
} source_line;

struct cm_defs {
    arena_block *arena;
    array strings, names, codes, stacks, texts;
    source_line *line;        /* a hash table */
    size_t lines, line_slots; /* slots: 0 or a power of two */
    cm_defs_cut cut;
};

cm_defs *cm_defs_new(void)
{
    return calloc(1, sizeof(cm_defs));
}

void cm_defs_free(cm_defs *defs)
{
    if (defs == NULL)
        return;
    for (arena_block *block = defs->arena, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(defs->strings.items);
    free(defs->names.items);
    for (uint32_t i = 0; i < defs->codes.count; i++)
        free((void *)((const cm_code_def *)defs->codes.items)[i].marks);
    free(defs->codes.items);
    free(defs->stacks.items);
    free(defs->texts.items);
    free(defs->line);
    free(defs);
}

/* A copy with a NUL appended; NULL: out of memory. */
static uint8_t *keep(cm_defs *defs, const uint8_t *bytes, size_t length)
{
    arena_block *block = defs->arena;
    if (block == NULL || block->size - block->used < length + 1) {
        size_t size = length + 1 > ARENA_BLOCK ? length + 1 : ARENA_BLOCK;
        arena_block *fresh = malloc(sizeof *fresh + size);
        if (fresh == NULL)
            return NULL;
        fresh->used = 0;
        fresh->size = size;
        /* A long string gets its own block; the block with room left stays in front. */
        if (block != NULL && size > ARENA_BLOCK) {
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            defs->arena = fresh;
        }
        block = fresh;
    }
    uint8_t *copy = block->bytes + block->used;
    memcpy(copy, bytes, length);
    copy[length] = 0;
    block->used += length + 1;
    return copy;
}

static void *extend(array *a, size_t item)
{
    if (a->count == a->capacity) {
        uint32_t capacity = a->capacity ? a->capacity * 2 : 64;
        if (capacity < a->capacity || capacity > UINT32_MAX - 8)
            return NULL;
        void *items = realloc(a->items, capacity * item);
        if (items == NULL)
            return NULL;
        a->items = items;
        a->capacity = capacity;
    }
    return (char *)a->items + a->count++ * item;
}

static const char out_of_memory[] = "out of memory while reading definitions";

static const char *add_text(cm_defs *defs, array *a, cm_cursor *c)
{
    size_t length;
    const uint8_t *bytes = cm_cursor_bytes(c, &length);
    if (c->bad)
        return "a definition is longer than its chunk";
    if (length > CM_DEFS_TEXT_MAX) {
        for (length = CM_DEFS_TEXT_MAX; length > 0 && (bytes[length] & 0xc0) == 0x80;)
            length--;
        defs->cut.texts++;
    }
    uint8_t *copy = keep(defs, bytes, length);
    const char **item = copy == NULL ? NULL : extend(a, sizeof *item);
    if (item == NULL)
        return out_of_memory;
    *item = (const char *)copy;
    return NULL;
}

/* NULL: the table is short (count is 0), or out of memory. */
static cm_linetable_mark *make_marks(const uint8_t *table, size_t length, uint32_t first_line,
                                     uint32_t *count)
{
    cm_linetable_mark mark = {.line = first_line};
    *count = 0;
    while (cm_linetable_pass(table, length, MARK_EVERY, &mark))
        ++*count;
    cm_linetable_mark *marks = *count == 0 ? NULL : malloc(*count * sizeof *marks);
    mark = (cm_linetable_mark){.line = first_line};
    for (uint32_t i = 0; marks != NULL && i < *count; i++) {
        cm_linetable_pass(table, length, MARK_EVERY, &mark);
        marks[i] = mark;
    }
    return marks;
}

bool cm_defs_position(const cm_code_def *code, uint32_t offset, cm_position *out)
{
    cm_linetable_mark from = {.line = (uint32_t)code->first_line};
    uint32_t low = 0, high = code->mark_count; /* the last mark at or before the offset */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (code->marks[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0)
        from = code->marks[low - 1];
    return cm_linetable_find_from(code->line_table, code->line_table_length, from, offset, out);
}

/* An upper bound of a text's bytes in JSON: control characters are escaped, and each non-ASCII byte
 * counts as three. */
static uint32_t written_length(const char *text)
{
    uint32_t length = 0;
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        length += c < 0x20 || c == 0x7f ? 6 : c >= 0x80 ? 3 : 1;
    }
    return length;
}

static const char *add_code(cm_defs *defs, cm_cursor *c)
{
    uint32_t file = cm_cursor_varint32(c);
    uint32_t function = cm_cursor_varint32(c);
    uint64_t first_line = cm_cursor_varint(c);
    size_t length;
    const uint8_t *bytes = cm_cursor_bytes(c, &length);

    if (c->bad)
        return "a definition is longer than its chunk";
    if (cm_defs_string(defs, file) == NULL || cm_defs_string(defs, function) == NULL)
        return "a code definition names a string that was not defined before it";
    uint32_t mark_count;
    cm_linetable_mark *marks = make_marks(bytes, length, (uint32_t)first_line, &mark_count);
    uint8_t *copy = marks == NULL && mark_count > 0 ? NULL : keep(defs, bytes, length);
    cm_code_def *code = copy == NULL ? NULL : extend(&defs->codes, sizeof *code);
    if (code == NULL) {
        free(marks);
        return out_of_memory;
    }
    const char *names[] = {cm_defs_string(defs, file), cm_defs_string(defs, function)};
    *code = (cm_code_def){.file = names[0],
                          .function = names[1],
                          .cost = CM_DEFS_FRAME_COST + written_length(names[0]) +
                                  written_length(names[1]),
                          .marks = marks,
                          .mark_count = mark_count,
                          .line_table = copy,
                          .line_table_length = (uint32_t)length,
                          .first_line = (int)(int32_t)(uint32_t)first_line};
    return NULL;
}

/* Fills in depth and cost. A stack that would be too deep becomes a truncated root. */
static cm_stack_def sized(cm_defs *defs, cm_stack_def stack)
{
    const cm_stack_def *parent = cm_defs_stack(defs, stack.parent);
    const cm_code_def *code = cm_defs_code(defs, stack.code);
    const char *class_name = cm_defs_string(defs, stack.class_name);
    if (parent != NULL && parent->depth >= CM_STACK_DEPTH_MAX) {
        defs->cut.stacks++;
        return (cm_stack_def){.flags = CM_DEFF_TRUNCATED, .depth = 1, .cost = CM_DEFS_FRAME_COST};
    }
    stack.depth = 1;
    stack.cost = code != NULL ? code->cost : CM_DEFS_FRAME_COST;
    if (class_name != NULL)
        stack.cost += written_length(class_name);
    if (parent != NULL) {
        stack.depth += parent->depth;
        stack.cost += parent->cost;
    }
    return stack;
}

static const char *add_stack(cm_defs *defs, cm_cursor *c)
{
    cm_stack_def stack = {.parent = cm_cursor_varint32(c)};
    stack.code = cm_cursor_varint32(c);
    stack.offset = cm_cursor_varint32(c);
    stack.flags = cm_cursor_varint32(c);
    stack.module = cm_cursor_varint(c);
    stack.class_name = cm_cursor_varint32(c);

    if (c->bad)
        return "a definition is longer than its chunk";
    if (stack.parent != CM_STACK_NONE && cm_defs_stack(defs, stack.parent) == NULL)
        return "a stack definition names a parent that was not defined before it";
    bool truncated = (stack.flags & CM_DEFF_TRUNCATED) != 0;
    if (truncated ? stack.code != 0 : cm_defs_code(defs, stack.code) == NULL)
        return "a stack definition names a code that was not defined before it";
    if (stack.class_name != 0 && cm_defs_string(defs, stack.class_name) == NULL)
        return "a stack definition names a class that was not defined before it";
    cm_stack_def *item = extend(&defs->stacks, sizeof *item);
    if (item == NULL)
        return out_of_memory;
    *item = sized(defs, stack);
    return NULL;
}

const char *cm_defs_add(cm_defs *defs, const uint8_t *records, size_t length)
{
    cm_cursor c = {records, records + length, false};

    while (c.at < c.end) {
        const char *wrong;
        switch (*c.at++) {
        case CM_DEF_STRING:
            wrong = add_text(defs, &defs->strings, &c);
            break;
        case CM_DEF_CODE:
            wrong = add_code(defs, &c);
            break;
        case CM_DEF_STACK:
            wrong = add_stack(defs, &c);
            break;
        case CM_DEF_NAME:
            wrong = add_text(defs, &defs->names, &c);
            break;
        default:
            wrong = "a definition is of an unknown kind";
        }
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* --- source lines --------------------------------------------------------------------------- */

static bool is_taken(const void *entry)
{
    return ((const source_line *)entry)->text != NULL;
}

static uint64_t hash_line(const void *owner, const void *entry)
{
    (void)owner;
    const source_line *l = entry;
    return cm_hash((uint64_t)l->code << 32 | l->line);
}

static bool same_line(const void *owner, const void *entry, const void *wanted)
{
    (void)owner;
    const source_line *a = entry, *b = wanted;
    return a->code == b->code && a->line == b->line;
}

static const cm_table_kind by_line = {sizeof(source_line), 64, 3, is_taken, hash_line, same_line};

/* The slot of this line, or the free one where it belongs. */
static source_line *find_line(const cm_defs *defs, uint32_t code, uint32_t line)
{
    const source_line wanted = {NULL, code, line};
    return &defs->line[cm_table_find(&by_line, NULL, defs->line, defs->line_slots,
                                     hash_line(NULL, &wanted), &wanted)];
}

const char *cm_defs_add_lines(cm_defs *defs, const uint8_t *payload, size_t length, bool ahead)
{
    cm_cursor c = {payload, payload + length, false};
    uint64_t n = cm_cursor_varint(&c);

    for (uint64_t i = 0; i < n && !c.bad; i++) {
        uint32_t code = cm_cursor_varint32(&c), line = cm_cursor_varint32(&c);
        uint64_t text = cm_cursor_varint(&c);
        if (!c.bad && text == (uint64_t)defs->texts.count + 1) {
            const char *wrong = add_text(defs, &defs->texts, &c);
            if (wrong != NULL)
                return wrong;
        }
        if (c.bad || text == 0 || text > defs->texts.count)
            return "a source line has a text that was not given before it";
        if (!ahead && cm_defs_code(defs, code) == NULL)
            continue;
        if (!cm_table_make_room(&by_line, NULL, (void **)&defs->line, &defs->line_slots,
                                defs->lines))
            return out_of_memory;
        source_line *slot = find_line(defs, code, line);
        if (slot->text == NULL) {
            *slot = (source_line){((const char **)defs->texts.items)[text - 1], code, line};
            defs->lines++;
        }
    }
    return c.bad ? "a chunk of source lines is damaged" : NULL;
}

const char *cm_defs_line(const cm_defs *defs, uint32_t code, uint32_t line)
{
    return defs->lines == 0 ? NULL : find_line(defs, code, line)->text;
}

/* --- by id ---------------------------------------------------------------------------------- */

static const void *item_at(const array *a, uint32_t id, uint32_t first, size_t item)
{
    return id >= first && id - first < a->count ? (const char *)a->items + (id - first) * item
                                                : NULL;
}

const char *cm_defs_string(const cm_defs *defs, uint32_t id)
{
    const char *const *item = item_at(&defs->strings, id, 1, sizeof *item);
    return item == NULL ? NULL : *item;
}

const char *cm_defs_name(const cm_defs *defs, uint32_t id)
{
    const char *const *item = item_at(&defs->names, id, 1, sizeof *item);
    return item == NULL ? NULL : *item;
}

const cm_code_def *cm_defs_code(const cm_defs *defs, uint32_t id)
{
    return item_at(&defs->codes, id, 1, sizeof(cm_code_def));
}

const cm_stack_def *cm_defs_stack(const cm_defs *defs, uint32_t id)
{
    return item_at(&defs->stacks, id, CM_STACK_FIRST, sizeof(cm_stack_def));
}

cm_defs_cut cm_defs_get_cut(const cm_defs *defs)
{
    return defs->cut;
}

size_t cm_defs_bytes(const cm_defs *defs)
{
    size_t bytes = defs->line_slots * sizeof(source_line);
    for (const arena_block *block = defs->arena; block != NULL; block = block->next)
        bytes += block->size;
    bytes += defs->strings.capacity * sizeof(char *) + defs->names.capacity * sizeof(char *);
    return bytes + defs->codes.capacity * sizeof(cm_code_def) +
           defs->stacks.capacity * sizeof(cm_stack_def);
}

uint32_t cm_defs_stack_count(const cm_defs *defs)
{
    return defs->stacks.count;
}

uint32_t cm_defs_code_count(const cm_defs *defs)
{
    return defs->codes.count;
}

uint32_t cm_defs_name_count(const cm_defs *defs)
{
    return defs->names.count;
}
