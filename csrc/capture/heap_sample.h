/* Samples of the memory that the process has in use, at ticks: no call of the program's own thread
 * is under way then, so that what tensors have of it can be subtracted exactly. */
#ifndef CM_CAPTURE_HEAP_SAMPLE_H
#define CM_CAPTURE_HEAP_SAMPLE_H

/* Outside of hooks and of the allocator: asking malloc takes its locks. Most calls only compare the
 * time: samples take a thousandth of it, and 10 ms at the beginning. */
void cm_heap_sample(void);
void cm_heap_sample_begin(void);

#endif
