/* CUPTI, played: callbacks with parameters of our own. */
#ifndef CM_TESTS_CALLBACKS_PLAY_H
#define CM_TESTS_CALLBACKS_PLAY_H

#include "../../../../csrc/sources/cupti/callbacks.h"
#include "../../../../csrc/sources/cupti/calls.h"
#include "../../../../csrc/sources/driver_events.h"
#include "../../../../csrc/sources/inflight.h"
#include "../../../../csrc/sources/libraries.h"

enum { D = CM_DOMAIN_DRIVER, R = CM_DOMAIN_RUNTIME };

extern cm_cupti_api api;
extern const cm_cupti_link link_;
extern uint8_t enabled[4][CM_CALL_IDS];
extern int asked;       /* for a context's device */
extern uint32_t newest; /* ids from here on are not known to this release */
extern bool deaf;       /* it tells nothing of the driver's calls */
extern uint32_t correlation, context_uid;
extern void *current; /* the context; on device 3 */

/* One callback, where it is enabled; the two of a whole call; one of a context. */
void tell(int domain, uint32_t id, int site, const void *parameters, int result, uint32_t call);
void whole(int domain, uint32_t id, const void *parameters, int result);
void resource(uint32_t id, void *context);
uint32_t id_of(const char *name);

#endif
