/* The process's sizes, as the kernel counts them in /proc/self/statm, and the machine's. */
#ifndef CM_CAPTURE_STATM_H
#define CM_CAPTURE_STATM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cm_statm {
    int64_t resident; /* bytes */
    int64_t writable; /* bytes of address space that is private and writable, touched or not */
} cm_statm;

/* For the collector alone: opens the file where that is not done yet. */
bool cm_statm_open(void);
void cm_statm_close(void);
/* From any thread; false until the collector has opened the file. */
bool cm_statm_read(cm_statm *out);

/* Of the whole machine, from /proc/meminfo, in bytes: what processes and the kernel have of it, and
 * the page cache, which the kernel gives back where memory is wanted. */
typedef struct cm_meminfo {
    int64_t host, cache;
} cm_meminfo;

/* For the CUPTI thread alone; cm_statm_close closes this file, too. */
bool cm_meminfo_read(cm_meminfo *out);

#endif
