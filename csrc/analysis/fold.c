#include "fold.h"

#include <string.h>

#include "grow.h"
#include "map.h"

typedef struct code {
    const char *file, *function;
    bool library;
} code;

typedef struct fold {
    uint32_t parent, code, line_number;
    uint32_t line; /* the user's, numbered */
} fold;

typedef struct line {
    const char *file;
    uint32_t number;
} line;

struct cm_folds {
    const cm_reader *reader;
    uint32_t *of; /* stack -> fold */
    size_t stacks, stack_capacity;
    fold *fold;
    size_t folds, fold_capacity;
    code *code;
    size_t codes, code_capacity;
    uint32_t *code_of; /* code id -> code + 1 */
    size_t code_ids;
    line *line; /* numbered from 1 */
    size_t lines, line_capacity;
    cm_idmap by_fold, by_code, by_line; /* hashes -> index; the next key after a collision */
};

cm_folds *cm_folds_new(const cm_reader *reader)
{
    cm_folds *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->reader = reader;
    if (!cm_grow((void **)&f->fold, &f->fold_capacity, CM_FOLD_FIRST, sizeof *f->fold) ||
        !cm_grow((void **)&f->of, &f->stack_capacity, CM_STACK_FIRST, sizeof *f->of)) {
        cm_folds_free(f);
        return NULL;
    }
    for (; f->folds < CM_FOLD_FIRST; f->folds++) {
        f->fold[f->folds] = (fold){.parent = CM_FOLD_NONE};
        f->of[f->folds] = (uint32_t)f->folds;
    }
    f->stacks = CM_STACK_FIRST;
    return f;
}

void cm_folds_free(cm_folds *f)
{
    if (f == NULL)
        return;
    free(f->of);
    free(f->fold);
    free(f->code);
    free(f->code_of);
    free(f->line);
    cm_idmap_clear(&f->by_fold);
    cm_idmap_clear(&f->by_code);
    cm_idmap_clear(&f->by_line);
    free(f);
}

static uint64_t hash_text(uint64_t key, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        key = (key ^ (unsigned char)*c) * 0x100000001b3u;
    return cm_mix(key + 1);
}

/* One path element of the file name: "site-packages", "python3.12" under lib. */
static bool is_library(const char *file)
{
    if (strncmp(file, "<frozen ", 8) == 0 || strncmp(file, "<eval_with_key>", 15) == 0)
        return true;
    if (strstr(file, "/site-packages/") != NULL || strstr(file, "/dist-packages/") != NULL)
        return true;
    for (const char *at = strstr(file, "/lib/python3."); at != NULL;
         at = strstr(at + 1, "/lib/python3.")) {
        const char *c = at + strlen("/lib/python3."), *digits = c;
        while (*c >= '0' && *c <= '9')
            c++;
        if (c > digits && (*c == '/' || (*c == 't' && c[1] == '/')))
            return true;
    }
    return false;
}

static bool find_code(cm_folds *f, const cm_frame *frame, uint32_t *out)
{
    size_t before = f->code_ids;
    if (frame->code < before && f->code_of[frame->code] != 0) {
        *out = f->code_of[frame->code] - 1;
        return true;
    }
    if (!cm_grow((void **)&f->code_of, &f->code_ids, (size_t)frame->code + 1, sizeof *f->code_of))
        return false;
    memset(f->code_of + before, 0, (f->code_ids - before) * sizeof *f->code_of);
    const char *file = frame->file ? frame->file : "";
    const char *function = frame->function ? frame->function : "";
    uint64_t key = hash_text(hash_text(7, file), function) >> 1;
    uint32_t found;
    for (; cm_idmap_get(&f->by_code, key, &found); key++)
        if (strcmp(f->code[found].file, file) == 0 &&
            strcmp(f->code[found].function, function) == 0)
            break;
    if (!cm_idmap_get(&f->by_code, key, &found)) {
        if (!cm_grow((void **)&f->code, &f->code_capacity, f->codes + 1, sizeof *f->code) ||
            !cm_idmap_put(&f->by_code, key, (uint32_t)f->codes))
            return false;
        found = (uint32_t)f->codes++;
        f->code[found] = (code){file, function, is_library(file)};
    }
    f->code_of[frame->code] = found + 1;
    *out = found;
    return true;
}

static bool find_line(cm_folds *f, const char *file, uint32_t number, uint32_t *out)
{
    uint64_t key = (hash_text(11, file) + cm_mix(number)) >> 1;
    uint32_t found;
    for (; cm_idmap_get(&f->by_line, key, &found); key++)
        if (f->line[found - 1].number == number && strcmp(f->line[found - 1].file, file) == 0) {
            *out = found;
            return true;
        }
    if (!cm_grow((void **)&f->line, &f->line_capacity, f->lines + 1, sizeof *f->line) ||
        !cm_idmap_put(&f->by_line, key, (uint32_t)f->lines + 1))
        return false;
    f->line[f->lines++] = (line){file, number};
    *out = (uint32_t)f->lines;
    return true;
}

static bool find_fold(cm_folds *f, fold wanted, uint32_t *out)
{
    uint64_t key =
        cm_mix(cm_mix((uint64_t)wanted.parent << 32 | wanted.code) + wanted.line_number) >> 1;
    uint32_t found;
    for (; cm_idmap_get(&f->by_fold, key, &found); key++) {
        const fold *other = &f->fold[found];
        if (other->parent == wanted.parent && other->code == wanted.code &&
            other->line_number == wanted.line_number) {
            *out = found;
            return true;
        }
    }
    const code *c = wanted.code != UINT32_MAX ? &f->code[wanted.code] : NULL;
    wanted.line = f->fold[wanted.parent].line;
    if (c != NULL && !c->library && !find_line(f, c->file, wanted.line_number, &wanted.line))
        return false;
    if (!cm_grow((void **)&f->fold, &f->fold_capacity, f->folds + 1, sizeof *f->fold) ||
        !cm_idmap_put(&f->by_fold, key, (uint32_t)f->folds))
        return false;
    f->fold[f->folds] = wanted;
    *out = (uint32_t)f->folds++;
    return true;
}

/* A parent is defined before its child, so its fold is there. */
static bool update(cm_folds *f)
{
    size_t count = (size_t)CM_STACK_FIRST + cm_reader_stack_count(f->reader);
    if (!cm_grow((void **)&f->of, &f->stack_capacity, count, sizeof *f->of))
        return false;
    for (; f->stacks < count; f->stacks++) {
        uint32_t stack = (uint32_t)f->stacks, parent = cm_reader_stack_parent(f->reader, stack);
        fold wanted = {.parent = parent < stack ? f->of[parent] : CM_FOLD_NONE};
        cm_frame frame;
        if (!cm_reader_stack_frame(f->reader, stack, &frame) || frame.truncated) {
            wanted.code = UINT32_MAX; /* outer frames that were not kept */
        } else {
            wanted.line_number = (uint32_t)frame.line;
            if (!find_code(f, &frame, &wanted.code))
                return false;
        }
        if (!find_fold(f, wanted, &f->of[stack]))
            return false;
    }
    return true;
}

bool cm_folds_of(cm_folds *f, uint32_t stack, uint32_t *out)
{
    if (stack >= f->stacks && !update(f))
        return false;
    *out = stack < f->stacks ? f->of[stack] : CM_FOLD_LOST;
    return true;
}

uint32_t cm_folds_line(const cm_folds *f, uint32_t fold)
{
    return fold < f->folds ? f->fold[fold].line : 0;
}
