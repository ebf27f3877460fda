#ifndef CM_FUZZ_STREAM_H
#define CM_FUZZ_STREAM_H

#include <stdint.h>

#include "../../../csrc/trace/reader.h"

/* Reads all of a window's items: NULL, or the promise that was broken. */
const char *fuzz_stream(cm_reader *reader, uint64_t window);

#endif
