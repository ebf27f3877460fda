/* Counting driver calls that allocate or free device memory, as they begin and end: a sample of the
 * device's totals is consistent only if none was in flight. */
#ifndef CM_SOURCES_INFLIGHT_H
#define CM_SOURCES_INFLIGHT_H

#include <stdint.h>

/* A call begins; pass the returned session to its end. Calls of an earlier session do not change
 * the counts of this one. */
uint32_t cm_inflight_begin_hook(void);
void cm_inflight_end_hook(uint32_t session);
/* Starts counting from zero; not a hook. */
void cm_inflight_new_session(void);
uint32_t cm_inflight_session(void);
/* If this is odd, or differs between two readings, a call was in flight between them. */
uint64_t cm_inflight_state(void);

#endif
