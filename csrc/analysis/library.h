/* Which code is not the user's: files of installed packages, of Python itself, and what
 * torch.compile wrote. cuptimem/stacks.py says the same of frames in a report, which is also read
 * where there is no extension; tests/analysis/test_analysis_library.py compares the two. */
#ifndef CM_ANALYSIS_LIBRARY_H
#define CM_ANALYSIS_LIBRARY_H

#include <stdbool.h>

bool cm_is_library(const char *file);

#endif
