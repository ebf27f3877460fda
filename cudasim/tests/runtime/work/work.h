/* The cases of all that is launched, recorded and told; what more than one file of them needs. */
#ifndef WORK_H
#define WORK_H

#include <stdint.h>

#include "../check.h"

/* Ended by a case without name. */
extern const test_case kernel_cases[], stream_cases[], event_cases[], capture_cases[];
extern const test_case graph_cases[], device_cases[], array_cases[], cupti_cases[], thread_cases[];

/* streams.c: adds what `number` points to. */
extern int called;
void host_function(void *number);
/* capture.c */
size_t nodes_of(graph g);
void spoiled(stream s); /* a capture that has failed: ends it, and the stream */
/* graphs.c: of device 0. */
uint64_t graph_memory(int attribute);

#endif
