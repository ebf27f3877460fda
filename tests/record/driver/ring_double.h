/* Stands in for the capture: one list of events for each thread, in plain memory, and no Python. */
#ifndef CM_TESTS_RING_DOUBLE_H
#define CM_TESTS_RING_DOUBLE_H

#include <stdbool.h>
#include <stddef.h>

#include "../../../csrc/capture/ring_producer.h"

enum { DOUBLE_EVENTS = 1 << 12 };

void double_record(bool on);         /* another capture each time it is turned on */
const cm_event *double_events(void); /* of the calling thread */
size_t double_count(void);
void double_clear(void);
void double_full(bool full);            /* no event finds room */
void double_reuse(bool reuse);          /* one event's room again and again: for timing */
const char *double_name(uint32_t name); /* of a name id */

#endif
