/* The fates of a window's blocks in the order of births, as its first reading found them (fates.h):
 * what the second reading, the replay, takes. One owner. */
#ifndef CM_HEAP_FATE_LIST_H
#define CM_HEAP_FATE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../base/event.h"
#include "../base/idmap.h"
#include "category.h"
#include "purposes.h"

/* A birth's byte. OPEN: its category is what its stack's other blocks are for (purposes.h), and the
 * byte's where those decide nothing. SAVED + i: an activation saved by the node of name i. */
enum {
    CM_FATE_CATEGORY = 0x0f,
    CM_FATE_LABELLED = 0x10,
    CM_FATE_OPEN = 0x20,
    CM_FATE_SAVED = 0x40,
    CM_FATE_ALIVE_HOOKED = 0xfe - (CM_LABEL_END - CM_LABEL_WORKSPACE), /* + kind - WORKSPACE */
    CM_FATE_ALIVE_LABELLED = 0xfe,
    CM_FATE_ALIVE = 0xff
};
enum { CM_FATE_SAVERS = CM_FATE_ALIVE_HOOKED - CM_FATE_SAVED };

typedef struct cm_fate {
    cm_category category;
    const cm_label *label; /* NULL: none; valid as long as the list */
    uint32_t saved_by;     /* name id, 0 = unknown */
} cm_fate;

/* A block of a cohort with a fate of its own: a record of the window ends or labels it. */
typedef struct cm_fate_single {
    uint64_t address;
    uint32_t birth;
    uint16_t device;
} cm_fate_single;

/* All zero is empty. */
typedef struct cm_fate_list {
    uint8_t *of; /* by birth */
    size_t births, capacity, next;
    uint32_t saver[CM_FATE_SAVERS];
    size_t savers;
    cm_idmap labels; /* birth -> label */
    cm_label *label;
    size_t label_count, label_capacity;
    cm_purposes purposes;
    cm_fate_single *single;                  /* births rise */
    size_t singles, single_capacity, passed; /* passed by next */
} cm_fate_list;

void cm_fate_list_clear(cm_fate_list *list);
/* A birth, alive; its number is births before the call. false: out of memory. */
bool cm_fate_list_add(cm_fate_list *list);
/* The byte of an activation that the node of this name saved. */
uint8_t cm_fate_list_saved(cm_fate_list *list, uint32_t saver);
/* The number of a label, for cm_fate_list_name; -1: out of memory. */
int64_t cm_fate_list_label(cm_fate_list *list, const cm_label *label);
/* Callbacks of gradients.h, whose context is the list. */
bool cm_fate_list_name(void *list, uint32_t birth, uint32_t label); /* false: out of memory */
bool cm_fate_list_lives(void *list, uint32_t birth);

/* The fate of that birth. First come those from before the window: the cohorts by number, each as
 * one birth, then the loose blocks in their order. Those of single blocks are among the window's.
 * stack: its own. Unknown after the last one. */
cm_fate cm_fate_list_at(const cm_fate_list *list, size_t birth, uint32_t stack, int64_t size);
/* Of each birth of the window, in turn. */
cm_fate cm_fate_list_next(cm_fate_list *list, uint32_t stack, int64_t size);
/* Whether an alive birth's byte is that of a label by no walk, which needs no more. */
static inline bool cm_fate_is_hooked(uint8_t byte)
{
    return byte >= CM_FATE_ALIVE_HOOKED && byte < CM_FATE_ALIVE_LABELLED;
}
/* The category of such a byte; 0: it is none. */
cm_category cm_fate_hooked(uint8_t byte);
/* The label's category; `otherwise` where it has none. */
cm_category cm_fate_category(const cm_label *label, cm_category otherwise);

#endif
