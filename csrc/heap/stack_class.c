#include "stack_class.h"

#include <stdlib.h>
#include <string.h>

#include "../base/hash.h"
#include "../base/grow.h"

typedef struct text {
    const char *file, *function;
    uint64_t hash;
    uint32_t file_number;
    bool library;
} text;

typedef struct folded {
    uint32_t parent, text; /* number of the outer frames, index of text */
    int32_t place;         /* line; -2: stands for frames that were not kept */
    uint32_t example;
    uint32_t line; /* the user's */
    bool user;     /* ... and it is one: not a library's */
} folded;

typedef struct line {
    uint32_t file;
    int32_t place;
} line;

/* Open addressing over one of the arrays below: index + 1, 0 = empty. */
typedef struct table {
    uint32_t *slot;
    size_t slots, count;
} table;

struct cm_samestack {
    const cm_reader *reader;
    const cm_library *of_library;
    uint32_t *of_stack, *of_code; /* number (index of text) + 1, 0 = not asked yet */
    size_t stack_capacity, code_capacity;
    text *text;
    folded *stack;
    line *lines;
    const char **files;
    size_t texts, text_capacity, stacks, folded_capacity, line_count, line_capacity, file_count,
        file_capacity;
    table by_text, by_stack, by_line, by_file;
    uint32_t *way; /* frames that are still to be folded */
    size_t way_capacity;
};

cm_samestack *cm_samestack_new(const cm_reader *reader, const cm_library *library)
{
    cm_samestack *fold = calloc(1, sizeof *fold);
    if (fold == NULL)
        return NULL;
    fold->reader = reader;
    fold->of_library = library;
    fold->stacks = CM_STACK_FIRST; /* the reserved ones stand for themselves */
    fold->line_count = 1;          /* and have line 0 */
    if (!cm_grow((void **)&fold->stack, &fold->folded_capacity, CM_STACK_FIRST,
                 sizeof *fold->stack) ||
        !cm_grow((void **)&fold->lines, &fold->line_capacity, 1, sizeof *fold->lines)) {
        cm_samestack_free(fold);
        return NULL;
    }
    fold->lines[0] = (line){0};
    for (uint32_t i = 0; i < CM_STACK_FIRST; i++)
        fold->stack[i] = (folded){.example = i};
    return fold;
}

void cm_samestack_free(cm_samestack *fold)
{
    if (fold == NULL)
        return;
    free(fold->of_stack);
    free(fold->of_code);
    free(fold->text);
    free(fold->stack);
    free(fold->lines);
    free(fold->files);
    free(fold->by_text.slot);
    free(fold->by_stack.slot);
    free(fold->by_line.slot);
    free(fold->by_file.slot);
    free(fold->way);
    free(fold);
}

/* --- tables -------------------------------------------------------------------------------- */

typedef uint64_t (*hash_fn)(const cm_samestack *fold, uint32_t index);
typedef bool (*same_fn)(const cm_samestack *fold, uint32_t index, const void *wanted);

static bool make_room(const cm_samestack *fold, table *t, hash_fn hash)
{
    if (t->count * 2 < t->slots)
        return true;
    table larger = {.slots = t->slots ? t->slots * 2 : 256, .count = t->count};
    larger.slot = calloc(larger.slots, sizeof *larger.slot);
    if (larger.slot == NULL)
        return false;
    for (size_t i = 0; i < t->slots; i++) {
        if (t->slot[i] == 0)
            continue;
        size_t at = hash(fold, t->slot[i] - 1) & (larger.slots - 1);
        while (larger.slot[at] != 0)
            at = (at + 1) & (larger.slots - 1);
        larger.slot[at] = t->slot[i];
    }
    free(t->slot);
    *t = larger;
    return true;
}

/* The slot of what is wanted, or the empty one where it belongs. */
static uint32_t *find(const cm_samestack *fold, const table *t, uint64_t hash, same_fn same,
                      const void *wanted)
{
    size_t at = hash & (t->slots - 1);
    while (t->slot[at] != 0 && !same(fold, t->slot[at] - 1, wanted))
        at = (at + 1) & (t->slots - 1);
    return &t->slot[at];
}

/* --- texts --------------------------------------------------------------------------------- */

static uint64_t hash_chars(const char *c, uint64_t hash)
{
    for (; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return cm_hash(hash);
}

static uint64_t hash_file(const cm_samestack *fold, uint32_t index)
{
    return hash_chars(fold->files[index], 1);
}

static bool same_file(const cm_samestack *fold, uint32_t index, const void *wanted)
{
    return strcmp(fold->files[index], wanted) == 0;
}

static uint64_t hash_text(const cm_samestack *fold, uint32_t index)
{
    return fold->text[index].hash;
}

static bool same_text(const cm_samestack *fold, uint32_t index, const void *wanted)
{
    const text *a = &fold->text[index], *b = wanted;
    return a->hash == b->hash && strcmp(a->file, b->file) == 0 &&
           strcmp(a->function, b->function) == 0;
}

static bool number_file(cm_samestack *fold, const char *file, uint32_t *number)
{
    if (!make_room(fold, &fold->by_file, hash_file))
        return false;
    uint32_t *slot = find(fold, &fold->by_file, hash_chars(file, 1), same_file, file);
    if (*slot == 0) {
        if (!cm_grow((void **)&fold->files, &fold->file_capacity, fold->file_count + 1,
                     sizeof *fold->files))
            return false;
        fold->files[fold->file_count++] = file;
        fold->by_file.count++;
        *slot = (uint32_t)fold->file_count;
    }
    *number = *slot - 1;
    return true;
}

static bool number_text(cm_samestack *fold, const cm_frame *frame, uint32_t *number)
{
    text wanted = {.file = frame->file ? frame->file : "",
                   .function = frame->function ? frame->function : ""};
    wanted.hash = hash_chars(wanted.function, hash_chars(wanted.file, 1));
    if (!make_room(fold, &fold->by_text, hash_text))
        return false;
    uint32_t *slot = find(fold, &fold->by_text, wanted.hash, same_text, &wanted);
    if (*slot == 0) {
        wanted.library = frame->truncated || cm_library_has(fold->of_library, wanted.file);
        if (!number_file(fold, wanted.file, &wanted.file_number) ||
            !cm_grow((void **)&fold->text, &fold->text_capacity, fold->texts + 1,
                     sizeof *fold->text))
            return false;
        fold->text[fold->texts++] = wanted;
        fold->by_text.count++;
        *slot = (uint32_t)fold->texts;
    }
    *number = *slot - 1;
    return true;
}

/* Known codes are not compared again. */
static bool number_code(cm_samestack *fold, const cm_frame *frame, uint32_t *number)
{
    size_t before = fold->code_capacity;
    if (frame->truncated)
        return number_text(fold, frame, number);
    if (!cm_grow((void **)&fold->of_code, &fold->code_capacity, (size_t)frame->code + 1,
                 sizeof *fold->of_code))
        return false;
    memset(fold->of_code + before, 0, (fold->code_capacity - before) * sizeof *fold->of_code);
    if (fold->of_code[frame->code] == 0) {
        if (!number_text(fold, frame, number))
            return false;
        fold->of_code[frame->code] = *number + 1;
    }
    *number = fold->of_code[frame->code] - 1;
    return true;
}

/* --- lines and stacks ---------------------------------------------------------------------- */

static uint64_t hash_line(const cm_samestack *fold, uint32_t index)
{
    return cm_hash((uint64_t)fold->lines[index].file << 32 | (uint32_t)fold->lines[index].place);
}

static bool same_line(const cm_samestack *fold, uint32_t index, const void *wanted)
{
    const line *a = &fold->lines[index], *b = wanted;
    return a->file == b->file && a->place == b->place;
}

static bool number_line(cm_samestack *fold, line wanted, uint32_t *number)
{
    if (!make_room(fold, &fold->by_line, hash_line) ||
        !cm_grow((void **)&fold->lines, &fold->line_capacity, fold->line_count + 1,
                 sizeof *fold->lines))
        return false;
    fold->lines[fold->line_count] = wanted;
    uint64_t hash = hash_line(fold, (uint32_t)fold->line_count);
    uint32_t *slot = find(fold, &fold->by_line, hash, same_line, &wanted);
    if (*slot == 0) {
        fold->by_line.count++;
        *slot = (uint32_t)++fold->line_count;
    }
    *number = *slot - 1;
    return true;
}

static uint64_t hash_folded(const cm_samestack *fold, uint32_t index)
{
    const folded *f = &fold->stack[index];
    return cm_hash(cm_hash((uint64_t)f->parent << 32 | f->text) + (uint32_t)f->place);
}

static bool same_folded(const cm_samestack *fold, uint32_t index, const void *wanted)
{
    const folded *a = &fold->stack[index], *b = wanted;
    return a->parent == b->parent && a->text == b->text && a->place == b->place;
}

static bool fold_frame(cm_samestack *fold, uint32_t stack, uint32_t parent, uint32_t *number)
{
    cm_frame frame;
    folded wanted = {.parent = parent, .example = stack};
    if (!cm_reader_stack_frame(fold->reader, stack, &frame)) {
        *number = CM_STACK_NONE;
        return true;
    }
    wanted.place = frame.truncated ? -2 : frame.line;
    if (!number_code(fold, &frame, &wanted.text) ||
        !make_room(fold, &fold->by_stack, hash_folded) || fold->stacks >= UINT32_MAX - 1 ||
        !cm_grow((void **)&fold->stack, &fold->folded_capacity, fold->stacks + 1,
                 sizeof *fold->stack))
        return false;
    fold->stack[fold->stacks] = wanted;
    uint64_t hash = hash_folded(fold, (uint32_t)fold->stacks);
    uint32_t *slot = find(fold, &fold->by_stack, hash, same_folded, &wanted);
    if (*slot == 0) {
        const text *t = &fold->text[wanted.text];
        folded *made = &fold->stack[fold->stacks];
        const folded *outer = &fold->stack[parent];
        made->user = !t->library || outer->user;
        if (t->library && outer->user)
            made->line = outer->line;
        else if (!number_line(fold, (line){t->file_number, wanted.place}, &made->line))
            return false;
        fold->by_stack.count++;
        *slot = (uint32_t)++fold->stacks;
    }
    *number = *slot - 1;
    return true;
}

bool cm_samestack_stack(cm_samestack *fold, uint32_t stack, uint32_t *number)
{
    uint32_t known = cm_reader_stack_count(fold->reader);
    if (stack < CM_STACK_FIRST || stack - CM_STACK_FIRST >= known) {
        *number = stack == CM_STACK_LOST ? CM_STACK_LOST : CM_STACK_NONE;
        return true;
    }
    size_t before = fold->stack_capacity;
    if (!cm_grow((void **)&fold->of_stack, &fold->stack_capacity, (size_t)CM_STACK_FIRST + known,
                 sizeof *fold->of_stack))
        return false;
    memset(fold->of_stack + before, 0, (fold->stack_capacity - before) * sizeof *fold->of_stack);
    /* Outwards to what is known, and back. A parent is defined before its child. */
    size_t frames = 0;
    uint32_t at = stack, outer = CM_STACK_NONE;
    while (at >= CM_STACK_FIRST && fold->of_stack[at] == 0) {
        if (!cm_grow((void **)&fold->way, &fold->way_capacity, frames + 1, sizeof *fold->way))
            return false;
        fold->way[frames++] = at;
        uint32_t parent = cm_reader_stack_parent(fold->reader, at);
        at = parent < at ? parent : CM_STACK_NONE;
    }
    if (at >= CM_STACK_FIRST)
        outer = fold->of_stack[at] - 1;
    while (frames > 0) {
        uint32_t frame = fold->way[--frames];
        if (!fold_frame(fold, frame, outer, &outer))
            return false;
        fold->of_stack[frame] = outer + 1;
    }
    *number = outer;
    return true;
}

uint32_t cm_samestack_example(const cm_samestack *fold, uint32_t number)
{
    return fold->stack[number].example;
}

uint32_t cm_samestack_line(const cm_samestack *fold, uint32_t number)
{
    return fold->stack[number].line;
}
