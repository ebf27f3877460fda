/* Which library a code address lies in. */
#ifndef CM_SOURCES_LIBRARIES_H
#define CM_SOURCES_LIBRARIES_H

#include <stdint.h>

/* The name id of the file name of the library that holds this code address, 0: none. A hook; takes
 * no lock, except the intern mutex at a library's first lookup. */
uint32_t cm_library_of_hook(uintptr_t address);
/* The same for a call that this thread is in. Finds the library even if it was loaded after the
 * last refresh: it cannot be unloaded meanwhile. */
uint32_t cm_library_of_site_hook(uintptr_t site);
/* The same for this thread's first frame outside of CUDA's driver, runtime, CUPTI and this
 * extension. Reads at most 32 frames. */
uint32_t cm_library_of_caller_hook(void);
/* Reads the list of mapped libraries again if it has changed. The CUPTI thread and the collector.
 */
void cm_libraries_refresh(void);

#endif
