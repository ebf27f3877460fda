#include "stack_class.h"

#include <stdlib.h>
#include <string.h>

#include "../base/hash.h"
#include "../base/grow.h"
#include "../base/table.h"

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

/* Over one of the arrays below: index + 1, 0 = free (base/table.h). */
typedef struct table {
    uint32_t *slot;
    size_t slots, count;
} table;

struct cm_stack_classes {
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

cm_stack_classes *cm_stack_classes_new(const cm_reader *reader, const cm_library *library)
{
    cm_stack_classes *fold = calloc(1, sizeof *fold);
    if (fold == NULL)
        return NULL;
    fold->reader = reader;
    fold->of_library = library;
    fold->stacks = CM_STACK_FIRST; /* the reserved ones stand for themselves */
    fold->line_count = 1;          /* and have line 0 */
    if (!cm_grow((void **)&fold->stack, &fold->folded_capacity, CM_STACK_FIRST,
                 sizeof *fold->stack) ||
        !cm_grow((void **)&fold->lines, &fold->line_capacity, 1, sizeof *fold->lines)) {
        cm_stack_classes_free(fold);
        return NULL;
    }
    fold->lines[0] = (line){0};
    for (uint32_t i = 0; i < CM_STACK_FIRST; i++)
        fold->stack[i] = (folded){.example = i};
    return fold;
}

void cm_stack_classes_free(cm_stack_classes *fold)
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

CM_TABLE_INLINE bool make_room(const cm_stack_classes *fold, table *t, const cm_table_kind *kind)
{
    return cm_table_make_room(kind, fold, (void **)&t->slot, &t->slots, t->count);
}

/* The slot of what is wanted, or the free one where it belongs. */
CM_TABLE_INLINE uint32_t *find(const cm_stack_classes *fold, const table *t, uint64_t hash,
                               const cm_table_kind *kind, const void *wanted)
{
    return &t->slot[cm_table_find(kind, fold, t->slot, t->slots, hash, wanted)];
}

/* --- texts --------------------------------------------------------------------------------- */

static uint64_t hash_chars(const char *c, uint64_t hash)
{
    for (; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return cm_hash(hash);
}

static uint64_t hash_file(const void *fold, const void *entry)
{
    return hash_chars(((const cm_stack_classes *)fold)->files[cm_table_index(entry)], 1);
}

static bool same_file(const void *fold, const void *entry, const void *wanted)
{
    return strcmp(((const cm_stack_classes *)fold)->files[cm_table_index(entry)], wanted) == 0;
}

static const cm_table_kind files = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_file, same_file};

static uint64_t hash_text(const void *fold, const void *entry)
{
    return ((const cm_stack_classes *)fold)->text[cm_table_index(entry)].hash;
}

static bool same_text(const void *fold, const void *entry, const void *wanted)
{
    const text *a = &((const cm_stack_classes *)fold)->text[cm_table_index(entry)], *b = wanted;
    return a->hash == b->hash && strcmp(a->file, b->file) == 0 &&
           strcmp(a->function, b->function) == 0;
}

static const cm_table_kind texts = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_text, same_text};

static bool number_file(cm_stack_classes *fold, const char *file, uint32_t *number)
{
    if (!make_room(fold, &fold->by_file, &files))
        return false;
    uint32_t *slot = find(fold, &fold->by_file, hash_chars(file, 1), &files, file);
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

static bool number_text(cm_stack_classes *fold, const cm_frame *frame, uint32_t *number)
{
    text wanted = {.file = frame->file ? frame->file : "",
                   .function = frame->function ? frame->function : ""};
    wanted.hash = hash_chars(wanted.function, hash_chars(wanted.file, 1));
    if (!make_room(fold, &fold->by_text, &texts))
        return false;
    uint32_t *slot = find(fold, &fold->by_text, wanted.hash, &texts, &wanted);
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
static bool number_code(cm_stack_classes *fold, const cm_frame *frame, uint32_t *number)
{
    if (frame->truncated)
        return number_text(fold, frame, number);
    if (!cm_grow_zeroed((void **)&fold->of_code, &fold->code_capacity, (size_t)frame->code + 1,
                        sizeof *fold->of_code))
        return false;
    if (fold->of_code[frame->code] == 0) {
        if (!number_text(fold, frame, number))
            return false;
        fold->of_code[frame->code] = *number + 1;
    }
    *number = fold->of_code[frame->code] - 1;
    return true;
}

/* --- lines and stacks ---------------------------------------------------------------------- */

static uint64_t hash_of_line(const line *l)
{
    return cm_hash((uint64_t)l->file << 32 | (uint32_t)l->place);
}

static uint64_t hash_line(const void *fold, const void *entry)
{
    return hash_of_line(&((const cm_stack_classes *)fold)->lines[cm_table_index(entry)]);
}

static bool same_line(const void *fold, const void *entry, const void *wanted)
{
    const line *a = &((const cm_stack_classes *)fold)->lines[cm_table_index(entry)], *b = wanted;
    return a->file == b->file && a->place == b->place;
}

static const cm_table_kind lines = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_line, same_line};

static bool number_line(cm_stack_classes *fold, line wanted, uint32_t *number)
{
    if (!make_room(fold, &fold->by_line, &lines) ||
        !cm_grow((void **)&fold->lines, &fold->line_capacity, fold->line_count + 1,
                 sizeof *fold->lines))
        return false;
    uint32_t *slot = find(fold, &fold->by_line, hash_of_line(&wanted), &lines, &wanted);
    if (*slot == 0) {
        fold->lines[fold->line_count] = wanted;
        fold->by_line.count++;
        *slot = (uint32_t)++fold->line_count;
    }
    *number = *slot - 1;
    return true;
}

static uint64_t hash_of_folded(const folded *f)
{
    return cm_hash(cm_hash((uint64_t)f->parent << 32 | f->text) + (uint32_t)f->place);
}

static uint64_t hash_folded(const void *fold, const void *entry)
{
    return hash_of_folded(&((const cm_stack_classes *)fold)->stack[cm_table_index(entry)]);
}

static bool same_folded(const void *fold, const void *entry, const void *wanted)
{
    const folded *a = &((const cm_stack_classes *)fold)->stack[cm_table_index(entry)], *b = wanted;
    return a->parent == b->parent && a->text == b->text && a->place == b->place;
}

static const cm_table_kind stacks = {sizeof(uint32_t),   256,         2,
                                     cm_table_is_number, hash_folded, same_folded};

static bool fold_frame(cm_stack_classes *fold, uint32_t stack, uint32_t parent, uint32_t *number)
{
    cm_frame frame;
    folded wanted = {.parent = parent, .example = stack};
    if (!cm_reader_stack_frame(fold->reader, stack, &frame)) {
        *number = CM_STACK_NONE;
        return true;
    }
    wanted.place = frame.truncated ? -2 : frame.line;
    if (!number_code(fold, &frame, &wanted.text) || !make_room(fold, &fold->by_stack, &stacks) ||
        fold->stacks >= UINT32_MAX - 1 ||
        !cm_grow((void **)&fold->stack, &fold->folded_capacity, fold->stacks + 1,
                 sizeof *fold->stack))
        return false;
    uint32_t *slot = find(fold, &fold->by_stack, hash_of_folded(&wanted), &stacks, &wanted);
    if (*slot == 0) {
        const text *t = &fold->text[wanted.text];
        folded *made = &fold->stack[fold->stacks];
        *made = wanted;
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

bool cm_stack_class_of(cm_stack_classes *fold, uint32_t stack, uint32_t *number)
{
    uint32_t known = cm_reader_stack_count(fold->reader);
    if (stack < CM_STACK_FIRST || stack - CM_STACK_FIRST >= known) {
        *number = stack == CM_STACK_LOST ? CM_STACK_LOST : CM_STACK_NONE;
        return true;
    }
    if (!cm_grow_zeroed((void **)&fold->of_stack, &fold->stack_capacity,
                        (size_t)CM_STACK_FIRST + known, sizeof *fold->of_stack))
        return false;
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

uint32_t cm_stack_class_example(const cm_stack_classes *fold, uint32_t number)
{
    return fold->stack[number].example;
}

uint32_t cm_stack_class_line(const cm_stack_classes *fold, uint32_t number)
{
    return fold->stack[number].line;
}
