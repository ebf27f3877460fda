/* Judging the evidence of one loop: each function makes cases for verdict.h and adds rows to the
 * verdicts. */
#ifndef CM_ANALYSIS_LEAK_CASES_H
#define CM_ANALYSIS_LEAK_CASES_H

#include "leak_evidence.h"

/* loop: index into leaks->loops. false: out of memory. */
bool cm_leaks_judge_blocks(cm_leaks *leaks, uint32_t loop);
bool cm_leaks_judge_nodes(cm_leaks *leaks, uint32_t loop);

#endif
