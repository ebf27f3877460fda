/* The definitions of a trace: what string, code, stack and name ids mean. Grows as records come;
 * everything returned stays valid until cm_defs_free. One owner, any thread. */
#ifndef CM_TRACE_DEFS_H
#define CM_TRACE_DEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "line_table.h"

/* What a trace may hold, whatever its writer: a recorder keeps to half of the depth and to the same
 * length. Longer texts are cut at a character; a stack that is deeper has no outer frames there
 * (CM_DEFF_TRUNCATED). Both are counted: cm_defs_cut. */
enum { CM_STACK_DEPTH_MAX = 1024, CM_DEFS_TEXT_MAX = 4096, CM_DEFS_FRAME_COST = 256 };

typedef struct cm_code_def {
    const char *file, *function;
    const uint8_t *line_table;
    const cm_linetable_mark *marks; /* spread over the table, so that a search in it is short */
    uint32_t line_table_length, mark_count;
    uint32_t cost; /* of a frame of it */
    int first_line;
} cm_code_def;

typedef struct cm_stack_def {
    uint64_t module;
    uint32_t parent, code, offset;
    uint32_t class_name; /* string id, 0 = none */
    uint32_t flags;      /* CM_DEFF_* */
    uint32_t depth;      /* frames */
    uint32_t cost;       /* bytes that its frames take where they are written out, about */
} cm_stack_def;

typedef struct cm_defs cm_defs;

cm_defs *cm_defs_new(void); /* NULL: out of memory */
void cm_defs_free(cm_defs *defs);

/* Reads whole records (format.h). NULL, or in one line what is wrong with them; those before the
 * wrong one are kept. */
const char *cm_defs_add(cm_defs *defs, const uint8_t *records, size_t length);

/* Stacks and texts that were longer than a trace may hold. */
typedef struct cm_defs_cut {
    uint64_t stacks, texts;
} cm_defs_cut;
cm_defs_cut cm_defs_get_cut(const cm_defs *defs);

/* The same for the payload of a chunk of source lines. ahead: the definitions before it were not
 * read yet, so its lines may be of code that is unknown; else such lines are left out. */
const char *cm_defs_add_lines(cm_defs *defs, const uint8_t *payload, size_t length, bool ahead);

/* NULL for ids that do not exist, the reserved ones included. */
const char *cm_defs_string(const cm_defs *defs, uint32_t id);
const char *cm_defs_name(const cm_defs *defs, uint32_t id);
const cm_code_def *cm_defs_code(const cm_defs *defs, uint32_t id);
/* Where an instruction of the code lies: cm_linetable_find. */
bool cm_defs_position(const cm_code_def *code, uint32_t offset, cm_position *out);
const cm_stack_def *cm_defs_stack(const cm_defs *defs, uint32_t id);
const char *cm_defs_line(const cm_defs *defs, uint32_t code, uint32_t line); /* NULL: unknown */
size_t cm_defs_bytes(const cm_defs *defs);                                   /* of memory, about */
uint32_t cm_defs_stack_count(const cm_defs *defs);
uint32_t cm_defs_code_count(const cm_defs *defs);
uint32_t cm_defs_name_count(const cm_defs *defs);

#endif
