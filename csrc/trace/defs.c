#include "defs.h"

#include <stdlib.h>
#include <string.h>

#include "../capture/event.h"
#include "bytes.h"
#include "format.h"

enum { ARENA_BLOCK = 64 * 1024 };

typedef struct arena_block {
    struct arena_block *next;
    size_t used, size;
    uint8_t bytes[];
} arena_block;

typedef struct array {
    void *items;
    uint32_t count, capacity;
} array;

struct cm_defs {
    arena_block *arena;
    array strings, names, codes, stacks;
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
    free(defs->codes.items);
    free(defs->stacks.items);
    free(defs);
}

/* A copy with a NUL behind it; NULL: out of memory. */
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
        /* A long string gets a block of its own; the one with room left stays in front. */
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
    uint8_t *copy = keep(defs, bytes, length);
    const char **item = copy == NULL ? NULL : extend(a, sizeof *item);
    if (item == NULL)
        return out_of_memory;
    *item = (const char *)copy;
    return NULL;
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
    uint8_t *copy = keep(defs, bytes, length);
    cm_code_def *code = copy == NULL ? NULL : extend(&defs->codes, sizeof *code);
    if (code == NULL)
        return out_of_memory;
    *code = (cm_code_def){.file = cm_defs_string(defs, file),
                          .function = cm_defs_string(defs, function),
                          .line_table = copy,
                          .line_table_length = (uint32_t)length,
                          .first_line = (int)(int32_t)(uint32_t)first_line};
    return NULL;
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
    *item = stack;
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
