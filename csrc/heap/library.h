/* Which code is not the user's: files of installed packages, of Python itself, and what
 * torch.compile wrote; but for the packages that were chosen as the user's own (--code).
 * cuptimem/report/stacks.py and cuptimem/report/own_code.py say the same of frames in a report, which is
 * also read where there is no extension; tests/unit/analysis/test_analysis_library.py compares the
 * two.
 */
#ifndef CM_HEAP_LIBRARY_H
#define CM_HEAP_LIBRARY_H

#include <stdbool.h>

typedef struct cm_library cm_library;

/* own: names of installed packages or modules, with commas between them
 * ("transformers,trl.trainer"); NULL and "" are none. NULL: out of memory. */
cm_library *cm_library_new(const char *own);
void cm_library_free(cm_library *library);
bool cm_library_has(const cm_library *library, const char *file);

/* `own` as a trace's META entry has it; "" for NULL, for what is no list of names, and for what is
 * longer than 1,024 bytes. */
const char *cm_library_names(const char *meta);

#endif
