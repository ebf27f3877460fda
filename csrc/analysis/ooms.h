/* Requests that could not be met: what a result keeps of them. */
#ifndef CM_ANALYSIS_OOMS_H
#define CM_ANALYSIS_OOMS_H

#include "analysis.h"

void cm_ooms_free(cm_oom *ooms, size_t count);

#endif
