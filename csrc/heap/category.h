/* Classes of a block: the phase of a step that made it (rules in attribution.h), and its category.
 * A walk over living objects decides the category of blocks that it met (CM_EV_LABEL), otherwise
 * the block's birth and end do (fates.h). */
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

/* The names in py_report.c are part of the JSON. */
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
    CM_CATEGORY_KEPT,
    CM_CATEGORY_LOADED,
    CM_CATEGORY_BUCKET,
    CM_CATEGORY_WORKSPACE,
    CM_CATEGORY_AUTOCAST,
    CM_CATEGORIES
} cm_category;

/* A walk's result for a block. */
typedef struct cm_label {
    uint64_t owner;        /* address of the owning module object, 0 = none */
    uint32_t text, module; /* name ids; module: the owner's qualified name, 0 = unknown */
    uint8_t kind;          /* cm_label_kind */
} cm_label;

/* Failed requests per device that reports list; compaction keeps them, too. */
enum { CM_OOMS_KEPT = 1024 };

#endif
