/* Words for a block: the part of a step that made it (attribution.h has the rules), and what it is
 * for. A walk over living objects decides the latter where it saw the block (CM_EV_LABEL);
 * elsewhere the block's birth and its end do (fates.h). */
#ifndef CM_HEAP_CATEGORY_H
#define CM_HEAP_CATEGORY_H

#include <stdint.h>

typedef enum cm_phase {
    CM_PHASE_OTHER = 0,
    CM_PHASE_DATA,
    CM_PHASE_FORWARD,
    CM_PHASE_BACKWARD,
    CM_PHASE_OPTIMIZER,
    CM_PHASE_BEFORE_START
} cm_phase;

/* The names in py_analysis.c are part of the JSON. */
typedef enum cm_category {
    CM_CATEGORY_UNKNOWN = 0,
    CM_CATEGORY_PARAMETER,
    CM_CATEGORY_BUFFER,
    CM_CATEGORY_GRADIENT,
    CM_CATEGORY_OPTIMIZER_STATE,
    CM_CATEGORY_INPUT,
    CM_CATEGORY_ACTIVATION,
    CM_CATEGORY_TEMPORARY,
    CM_CATEGORY_BEFORE_START,
    CM_CATEGORIES
} cm_category;

/* What a walk over living objects found out about a block. */
typedef struct cm_label {
    uint64_t owner;        /* address of the module object that owns it, 0 = none */
    uint32_t text, module; /* name ids; module: the owner's qualified name, 0 = unknown */
    uint8_t kind;          /* cm_label_kind */
} cm_label;

/* Refused requests of a device that reports list; compaction keeps them, too. */
enum { CM_OOMS_KEPT = 1024 };

#endif
