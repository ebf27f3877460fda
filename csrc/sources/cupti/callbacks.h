/* CUPTI's callbacks, which become events. */
#ifndef CM_SOURCES_CUPTI_CALLBACKS_H
#define CM_SOURCES_CUPTI_CALLBACKS_H

#include "api.h"

/* The one function that is subscribed. A hook: any thread, GIL held or not. */
void cm_cupti_callback_hook(void *userdata, int domain, uint32_t id, const void *data);
/* Enables the callbacks that this release knows. Returns how many are enabled, 0 if none of them
 * reports memory. */
int cm_cupti_driver_enable(const cm_cupti_link *link, bool launches);
void cm_cupti_driver_disable(const cm_cupti_link *link);
/* Set while this thread calls CUDA for us: those calls are no events. */
extern __thread bool cm_cupti_own_thread __attribute__((tls_model("initial-exec")));
uint64_t cm_cupti_driver_count(void); /* callbacks that became events since enable */
/* Whether a context is being destroyed: the driver must not be asked for it. */
bool cm_cupti_context_ends(void);
/* A context of this device that was seen in use and not destroyed; NULL: none. */
void *cm_cupti_context_on(int device);
/* Whether MEMORY2 records will name the callers of the calls they cover, so that callbacks need not
 * unwind. */
void cm_cupti_driver_expect_records(bool expected);

#endif
