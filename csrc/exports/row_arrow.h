/* Rows as Arrow record batches (arrow_c.h). Texts are dictionary-encoded, and the dictionaries of a
 * batch have the values of its own rows alone: memory is bounded by a batch, not by the trace.
 * One owner, any thread. */
#ifndef CM_EXPORTS_ROW_ARROW_H
#define CM_EXPORTS_ROW_ARROW_H

#include "arrow_c.h"
#include "rows.h"
#include "text.h"

enum {
    CM_ARROW_TEXTS = 11, /* device, phase, operator, category, module, saved by, file, function,
                            where, stack, origin: in this order */
    CM_ARROW_COLUMNS = 22,
    CM_ARROW_DICTIONARIES = CM_ARROW_TEXTS + 1, /* and when */
    CM_ARROW_FULL = 1 << 16, /* rows: a batch is taken that has at least as many, ... */
    CM_ARROW_LARGE = 1 << 26 /* ... or as many bytes of texts */
};

/* Of one origin: numbers of texts (cm_arrow_text_add), -1: none; and the line, -1: none. */
typedef struct cm_arrow_name {
    bool known;
    int32_t text[CM_ARROW_TEXTS];
    int32_t line;
} cm_arrow_name;

/* Gives the texts of an origin, once, except those of counted blocks. false: the export fails. */
typedef bool (*cm_arrow_namer)(void *context, uint16_t device, uint32_t origin,
                               cm_arrow_name *name);

typedef struct cm_arrow_column {
    void *value;
    uint8_t *valid; /* a byte for each row until the batch is taken */
    size_t capacity, valid_capacity;
    int64_t nulls;
} cm_arrow_column;

/* All texts of a column so far, and those of the batch. */
typedef struct cm_arrow_dictionary {
    cm_text all;
    struct cm_arrow_entry {
        size_t begin, length;
        uint64_t batch; /* the last one that has it, */
        int32_t number; /* ... as this value */
    } * entry;
    size_t entries, capacity;
    cm_text text; /* of the batch */
    int64_t *offset;
    size_t offsets, offset_capacity; /* offset[offsets] is the end of the last value */
} cm_arrow_dictionary;

typedef struct cm_arrow {
    cm_arrow_namer namer;
    void *context;
    cm_arrow_name *name; /* by origin */
    size_t names;
    cm_arrow_column column[CM_ARROW_COLUMNS];
    cm_arrow_dictionary dictionary[CM_ARROW_DICTIONARIES];
    size_t rows;    /* of the batch */
    uint64_t batch; /* from 1 */
} cm_arrow;

/* With namer and context set, batch 1 and the rest zero, it is at the start. */
void cm_arrow_clear(cm_arrow *arrow);
/* Adds a text to a column; its number, -1: out of memory. A text is added once. */
int32_t cm_arrow_text_add(cm_arrow *arrow, size_t dictionary, const char *text, size_t length);
/* A cm_row_sink, of a cm_arrow. */
bool cm_arrow_put(void *arrow, const cm_row *row);
bool cm_arrow_is_full(const cm_arrow *arrow);
/* The schema and the batch so far, which the caller releases. false: out of memory. */
bool cm_arrow_schema(struct ArrowSchema *schema);
bool cm_arrow_take(cm_arrow *arrow, struct ArrowArray *out);

#endif
