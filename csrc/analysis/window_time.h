/* The times of a window's report; the analyses use the trace's times. */
#ifndef CM_ANALYSIS_WINDOW_TIME_H
#define CM_ANALYSIS_WINDOW_TIME_H

#include "analysis.h"

/* Counts all times of the result from out->begin_ns, except begin_ns and end_ns themselves. */
void cm_window_time_rebase(cm_analysis *out);

#endif
