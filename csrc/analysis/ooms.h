/* The failed requests that a result contains. */
#ifndef CM_ANALYSIS_OOMS_H
#define CM_ANALYSIS_OOMS_H

#include "analysis.h"

void cm_ooms_free(cm_oom *ooms, size_t count);

#endif
