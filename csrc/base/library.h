/* Library code: files of installed packages, of Python itself, and code that libraries generate
 * (torch.compile's, or in files with random names), except packages chosen as user code (--code).
 * cuptimem/report/stacks.py and cuptimem/report/own_code.py repeat the rule for reports, which are
 * also read without the extension; tests/unit/analysis/test_analysis_library.py compares both. */
#ifndef CM_BASE_LIBRARY_H
#define CM_BASE_LIBRARY_H

#include <stdbool.h>

typedef struct cm_library cm_library;

/* own: comma-separated names of installed packages or modules ("transformers,trl.trainer"); may be
 * NULL or "". script, directory: of the program, as META has them, or NULL: what lies in the same
 * folder with a random name is the user's. NULL: out of memory. */
cm_library *cm_library_new(const char *own, const char *script, const char *directory);
void cm_library_free(cm_library *library);
bool cm_library_has(const cm_library *library, const char *file);

/* The path inside the innermost folder of installed packages, or of Python's own modules, for
 * packages lie inside Python's own; NULL: it is in none. */
const char *cm_library_inside(const char *file);
/* Whether torch.compile wrote the file. Its name is made of its content: ab/cab<the rest of a
 * hash>.py, in any folder. */
bool cm_library_is_generated(const char *file);

/* `own` from a trace's META entry; "" for NULL, for anything but a list of names, and beyond 1,024
 * bytes. */
const char *cm_library_names(const char *meta);

#endif
