/* The definitions of a trace: its strings, codes, stacks and names by id. Everything returned stays
 * valid until cm_defs_free. One owner, any thread. */
#ifndef CM_TRACE_DEFS_H
#define CM_TRACE_DEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "line_table.h"

/* Limits for any writer; a recorder keeps to half the depth and to the same length. Longer texts
 * are cut at a character. Deeper stacks lose their outer frames (CM_DEFF_TRUNCATED). Both are
 * counted in cm_defs_cut. */
enum { CM_STACK_DEPTH_MAX = 1024, CM_DEFS_TEXT_MAX = 4096, CM_DEFS_FRAME_COST = 256 };

typedef struct cm_code_def {
    const char *file, *function;
    const uint8_t *line_table;
    const cm_linetable_mark *marks; /* spread over the table, to keep searches short */
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
    uint32_t cost;       /* bytes of its frames when written out, roughly */
} cm_stack_def;

typedef struct cm_defs cm_defs;

cm_defs *cm_defs_new(void); /* NULL: out of memory */
void cm_defs_free(cm_defs *defs);

/* Reads whole records (format.h). NULL, or what is wrong with them, in one line; the records before
 * the wrong one are kept. */
const char *cm_defs_add(cm_defs *defs, const uint8_t *records, size_t length);

/* Number of stacks and texts beyond the limits. */
typedef struct cm_defs_cut {
    uint64_t stacks, texts;
} cm_defs_cut;
cm_defs_cut cm_defs_get_cut(const cm_defs *defs);

/* The same for the payload of a chunk of source lines. Lines of unknown code are left out, unless
 * `ahead`: the definitions before the chunk were not read yet. */
const char *cm_defs_add_lines(cm_defs *defs, const uint8_t *payload, size_t length, bool ahead);

/* NULL for ids that do not exist, the reserved ones included. */
const char *cm_defs_string(const cm_defs *defs, uint32_t id);
const char *cm_defs_name(const cm_defs *defs, uint32_t id);
const cm_code_def *cm_defs_code(const cm_defs *defs, uint32_t id);
/* The position of an instruction, by cm_linetable_find. */
bool cm_defs_position(const cm_code_def *code, uint32_t offset, cm_position *out);
const cm_stack_def *cm_defs_stack(const cm_defs *defs, uint32_t id);
const char *cm_defs_line(const cm_defs *defs, uint32_t code, uint32_t line); /* NULL: unknown */
size_t cm_defs_bytes(const cm_defs *defs); /* of memory, roughly */
uint32_t cm_defs_stack_count(const cm_defs *defs);
uint32_t cm_defs_code_count(const cm_defs *defs);
uint32_t cm_defs_name_count(const cm_defs *defs);

#endif
