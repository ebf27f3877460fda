/* Library code: files of installed packages, of Python itself, and of torch.compile, except
 * packages chosen as user code (--code). cuptimem/report/stacks.py and cuptimem/report/own_code.py
 * repeat the rule for reports, which are also read without the extension;
 * tests/unit/analysis/test_analysis_library.py compares both. */
#ifndef CM_HEAP_LIBRARY_H
#define CM_HEAP_LIBRARY_H

#include <stdbool.h>

typedef struct cm_library cm_library;

/* own: comma-separated names of installed packages or modules ("transformers,trl.trainer"); may be
 * NULL or "". NULL: out of memory. */
cm_library *cm_library_new(const char *own);
void cm_library_free(cm_library *library);
bool cm_library_has(const cm_library *library, const char *file);

/* `own` from a trace's META entry; "" for NULL, for anything but a list of names, and beyond 1,024
 * bytes. */
const char *cm_library_names(const char *meta);

#endif
