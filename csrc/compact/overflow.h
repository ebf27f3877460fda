/* A recording past its bound: whole events in a side file, the older ones compacted (compact.h). */
#ifndef CM_COMPACT_OVERFLOW_H
#define CM_COMPACT_OVERFLOW_H

#include "../trace/compactor.h"

extern const cm_compactor cm_overflow;

#endif
