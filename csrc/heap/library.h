/* Library code: files of installed packages, of Python itself, and code that libraries generate
 * (torch.compile's, or in files with random names), except packages chosen as user code (--code).
 * cuptimem/report/stacks.py and cuptimem/report/own_code.py repeat the rule for reports, which are
 * also read without the extension; tests/unit/analysis/test_analysis_library.py compares both. */
#ifndef CM_HEAP_LIBRARY_H
#define CM_HEAP_LIBRARY_H

#include <stdbool.h>

typedef struct cm_library cm_library;

/* own: comma-separated names of installed packages or modules ("transformers,trl.trainer"); may be
 * NULL or "". script, directory: of the program, as META has them, or NULL: what lies in the same
 * folder with a random name is the user's. NULL: out of memory. */
cm_library *cm_library_new(const char *own, const char *script, const char *directory);
void cm_library_free(cm_library *library);
bool cm_library_has(const cm_library *library, const char *file);

/* `own` from a trace's META entry; "" for NULL, for anything but a list of names, and beyond 1,024
 * bytes. */
const char *cm_library_names(const char *meta);

#endif
