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

typedef struct class
{
    uint32_t parent, text; /* number of the outer frames, index of text */
    int32_t place;         /* line; -2: stands for dropped frames */
    uint32_t example;
    uint32_t line; /* of user code */
    bool user;     /* `line` is user code, not a library's */
} class;

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
    uint32_t *of_stack, *of_code; /* number (index of text) + 1, 0 = not yet known */
    size_t stack_capacity, code_capacity;
    text *text;
    class *stack;
    line *lines;
    const char **files;
    size_t texts, text_capacity, stacks, class_capacity, line_count, line_capacity, file_count,
        file_capacity;
    table by_text, by_stack, by_line, by_file;
    uint32_t *way; /* frames that have no class yet */
    size_t way_capacity;
};

cm_stack_classes *cm_stack_classes_new(const cm_reader *reader, const cm_library *library)
{
    cm_stack_classes *classes = calloc(1, sizeof *classes);
    if (classes == NULL)
        return NULL;
    classes->reader = reader;
    classes->of_library = library;
    classes->stacks = CM_STACK_FIRST; /* the reserved ones stand for themselves */
    classes->line_count = 1;          /* and have line 0 */
    if (!cm_grow((void **)&classes->stack, &classes->class_capacity, CM_STACK_FIRST,
                 sizeof *classes->stack) ||
        !cm_grow((void **)&classes->lines, &classes->line_capacity, 1, sizeof *classes->lines)) {
        cm_stack_classes_free(classes);
        return NULL;
    }
    classes->lines[0] = (line){0};
    for (uint32_t i = 0; i < CM_STACK_FIRST; i++)
        classes->stack[i] = (class){.example = i};
    return classes;
}

void cm_stack_classes_free(cm_stack_classes *classes)
{
    if (classes == NULL)
        return;
    free(classes->of_stack);
    free(classes->of_code);
    free(classes->text);
    free(classes->stack);
    free(classes->lines);
    free(classes->files);
    free(classes->by_text.slot);
    free(classes->by_stack.slot);
    free(classes->by_line.slot);
    free(classes->by_file.slot);
    free(classes->way);
    free(classes);
}

/* --- tables -------------------------------------------------------------------------------- */

CM_TABLE_INLINE bool make_room(const cm_stack_classes *classes, table *t, const cm_table_kind *kind)
{
    return cm_table_make_room(kind, classes, (void **)&t->slot, &t->slots, t->count);
}

/* The slot of the wanted entry, or the free one for it. */
CM_TABLE_INLINE uint32_t *find(const cm_stack_classes *classes, const table *t, uint64_t hash,
                               const cm_table_kind *kind, const void *wanted)
{
    return &t->slot[cm_table_find(kind, classes, t->slot, t->slots, hash, wanted)];
}

/* --- texts --------------------------------------------------------------------------------- */

static uint64_t hash_chars(const char *c, uint64_t hash)
{
    for (; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return cm_hash(hash);
}

static uint64_t hash_file(const void *classes, const void *entry)
{
    return hash_chars(((const cm_stack_classes *)classes)->files[cm_table_index(entry)], 1);
}

static bool same_file(const void *classes, const void *entry, const void *wanted)
{
    return strcmp(((const cm_stack_classes *)classes)->files[cm_table_index(entry)], wanted) == 0;
}

static const cm_table_kind files = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_file, same_file};

static uint64_t hash_text(const void *classes, const void *entry)
{
    return ((const cm_stack_classes *)classes)->text[cm_table_index(entry)].hash;
}

static bool same_text(const void *classes, const void *entry, const void *wanted)
{
    const text *a = &((const cm_stack_classes *)classes)->text[cm_table_index(entry)], *b = wanted;
    return a->hash == b->hash && strcmp(a->file, b->file) == 0 &&
           strcmp(a->function, b->function) == 0;
}

static const cm_table_kind texts = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_text, same_text};

static bool number_file(cm_stack_classes *classes, const char *file, uint32_t *number)
{
    if (!make_room(classes, &classes->by_file, &files))
        return false;
    uint32_t *slot = find(classes, &classes->by_file, hash_chars(file, 1), &files, file);
    if (*slot == 0) {
        if (!cm_grow((void **)&classes->files, &classes->file_capacity, classes->file_count + 1,
                     sizeof *classes->files))
            return false;
        classes->files[classes->file_count++] = file;
        classes->by_file.count++;
        *slot = (uint32_t)classes->file_count;
    }
    *number = *slot - 1;
    return true;
}

static bool number_text(cm_stack_classes *classes, const cm_frame *frame, uint32_t *number)
{
    text wanted = {.file = frame->file ? frame->file : "",
                   .function = frame->function ? frame->function : ""};
    wanted.hash = hash_chars(wanted.function, hash_chars(wanted.file, 1));
    if (!make_room(classes, &classes->by_text, &texts))
        return false;
    uint32_t *slot = find(classes, &classes->by_text, wanted.hash, &texts, &wanted);
    if (*slot == 0) {
        wanted.library = frame->truncated || cm_library_has(classes->of_library, wanted.file);
        if (!number_file(classes, wanted.file, &wanted.file_number) ||
            !cm_grow((void **)&classes->text, &classes->text_capacity, classes->texts + 1,
                     sizeof *classes->text))
            return false;
        classes->text[classes->texts++] = wanted;
        classes->by_text.count++;
        *slot = (uint32_t)classes->texts;
    }
    *number = *slot - 1;
    return true;
}

/* Known codes are compared only once. */
static bool number_code(cm_stack_classes *classes, const cm_frame *frame, uint32_t *number)
{
    if (frame->truncated)
        return number_text(classes, frame, number);
    if (!cm_grow_zeroed((void **)&classes->of_code, &classes->code_capacity,
                        (size_t)frame->code + 1, sizeof *classes->of_code))
        return false;
    if (classes->of_code[frame->code] == 0) {
        if (!number_text(classes, frame, number))
            return false;
        classes->of_code[frame->code] = *number + 1;
    }
    *number = classes->of_code[frame->code] - 1;
    return true;
}

/* --- lines and stacks ---------------------------------------------------------------------- */

static uint64_t hash_of_line(const line *l)
{
    return cm_hash((uint64_t)l->file << 32 | (uint32_t)l->place);
}

static uint64_t hash_line(const void *classes, const void *entry)
{
    return hash_of_line(&((const cm_stack_classes *)classes)->lines[cm_table_index(entry)]);
}

static bool same_line(const void *classes, const void *entry, const void *wanted)
{
    const line *a = &((const cm_stack_classes *)classes)->lines[cm_table_index(entry)], *b = wanted;
    return a->file == b->file && a->place == b->place;
}

static const cm_table_kind lines = {sizeof(uint32_t),   256,       2,
                                    cm_table_is_number, hash_line, same_line};

static bool number_line(cm_stack_classes *classes, line wanted, uint32_t *number)
{
    if (!make_room(classes, &classes->by_line, &lines) ||
        !cm_grow((void **)&classes->lines, &classes->line_capacity, classes->line_count + 1,
                 sizeof *classes->lines))
        return false;
    uint32_t *slot = find(classes, &classes->by_line, hash_of_line(&wanted), &lines, &wanted);
    if (*slot == 0) {
        classes->lines[classes->line_count] = wanted;
        classes->by_line.count++;
        *slot = (uint32_t)++classes->line_count;
    }
    *number = *slot - 1;
    return true;
}

static uint64_t hash_of_class(const class *f)
{
    return cm_hash(cm_hash((uint64_t)f->parent << 32 | f->text) + (uint32_t)f->place);
}

static uint64_t hash_class(const void *classes, const void *entry)
{
    return hash_of_class(&((const cm_stack_classes *)classes)->stack[cm_table_index(entry)]);
}

static bool same_class(const void *classes, const void *entry, const void *wanted)
{
    const class *a = &((const cm_stack_classes *)classes)->stack[cm_table_index(entry)],
                *b = wanted;
    return a->parent == b->parent && a->text == b->text && a->place == b->place;
}

static const cm_table_kind stacks = {sizeof(uint32_t),   256,        2,
                                     cm_table_is_number, hash_class, same_class};

static bool classify_frame(cm_stack_classes *classes, uint32_t stack, uint32_t parent,
                           uint32_t *number)
{
    cm_frame frame;
    class wanted = {.parent = parent, .example = stack};
    if (!cm_reader_stack_frame(classes->reader, stack, &frame)) {
        *number = CM_STACK_NONE;
        return true;
    }
    wanted.place = frame.truncated ? -2 : frame.line;
    if (!number_code(classes, &frame, &wanted.text) ||
        !make_room(classes, &classes->by_stack, &stacks) || classes->stacks >= UINT32_MAX - 1 ||
        !cm_grow((void **)&classes->stack, &classes->class_capacity, classes->stacks + 1,
                 sizeof *classes->stack))
        return false;
    uint32_t *slot = find(classes, &classes->by_stack, hash_of_class(&wanted), &stacks, &wanted);
    if (*slot == 0) {
        const text *t = &classes->text[wanted.text];
        class *made = &classes->stack[classes->stacks];
        *made = wanted;
        const class *outer = &classes->stack[parent];
        made->user = !t->library || outer->user;
        if (t->library && outer->user)
            made->line = outer->line;
        else if (!number_line(classes, (line){t->file_number, wanted.place}, &made->line))
            return false;
        classes->by_stack.count++;
        *slot = (uint32_t)++classes->stacks;
    }
    *number = *slot - 1;
    return true;
}

bool cm_stack_class_of(cm_stack_classes *classes, uint32_t stack, uint32_t *number)
{
    uint32_t known = cm_reader_stack_count(classes->reader);
    if (stack < CM_STACK_FIRST || stack - CM_STACK_FIRST >= known) {
        *number = stack == CM_STACK_LOST ? CM_STACK_LOST : CM_STACK_NONE;
        return true;
    }
    if (!cm_grow_zeroed((void **)&classes->of_stack, &classes->stack_capacity,
                        (size_t)CM_STACK_FIRST + known, sizeof *classes->of_stack))
        return false;
    /* Outwards to a known frame, and back. A parent is defined before its child. */
    size_t frames = 0;
    uint32_t at = stack, outer = CM_STACK_NONE;
    while (at >= CM_STACK_FIRST && classes->of_stack[at] == 0) {
        if (!cm_grow((void **)&classes->way, &classes->way_capacity, frames + 1,
                     sizeof *classes->way))
            return false;
        classes->way[frames++] = at;
        uint32_t parent = cm_reader_stack_parent(classes->reader, at);
        at = parent < at ? parent : CM_STACK_NONE;
    }
    if (at >= CM_STACK_FIRST)
        outer = classes->of_stack[at] - 1;
    while (frames > 0) {
        uint32_t frame = classes->way[--frames];
        if (!classify_frame(classes, frame, outer, &outer))
            return false;
        classes->of_stack[frame] = outer + 1;
    }
    *number = outer;
    return true;
}

uint32_t cm_stack_class_example(const cm_stack_classes *classes, uint32_t number)
{
    return classes->stack[number].example;
}

uint32_t cm_stack_class_line(const cm_stack_classes *classes, uint32_t number)
{
    return classes->stack[number].line;
}
