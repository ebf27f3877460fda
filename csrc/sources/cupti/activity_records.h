/* CUPTI's activity records -> events DRIVER_RECORD, POOL, WORK. The CUPTI thread only.
 *
 * Releases only append to a record, so a known prefix is valid in all of them, and a field exists
 * if the record is long enough. Record lengths come from the loaded library, never from its
 * version. */
#ifndef CM_SOURCES_CUPTI_ACTIVITY_RECORDS_H
#define CM_SOURCES_CUPTI_ACTIVITY_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api.h"

/* CUpti_ActivityKind: the kinds used here. */
enum {
    CM_CUPTI_MEMCPY_RECORD = 1,
    CM_CUPTI_MEMSET_RECORD = 2,
    CM_CUPTI_KERNEL_RECORD = 3,
    CM_CUPTI_DRIVER_RECORD = 4,
    CM_CUPTI_RUNTIME_RECORD = 5,
    CM_CUPTI_CONCURRENT_RECORD = 10,
    CM_CUPTI_MEMCPY2_RECORD = 22,
    CM_CUPTI_MEMORY2_RECORD = 49,
    CM_CUPTI_POOL_RECORD = 50,
    CM_CUPTI_RECORD_KINDS = 64
};

/* Prefixes of the records; naturally aligned, as CUPTI's are. */
typedef struct cm_cupti_memory2 { /* Memory2 (11.2) .. Memory4 */
    uint32_t kind, operation, memory_kind, correlation;
    uint64_t address, bytes, time, pc;
    uint32_t process, device, context, stream;
    uint64_t name;
    uint32_t is_async, padding, pool_type, padding2;
    uint64_t pool, pool_threshold, pool_size;
    uint64_t pool_utilized; /* since Memory3 (11.6) */
} cm_cupti_memory2;

typedef struct cm_cupti_pool { /* Pool (11.2) .. Pool3 */
    uint32_t kind, operation, pool_type, correlation;
    uint32_t process, device;
    uint64_t least_kept, address, size, threshold, time;
    uint64_t utilized; /* since Pool2 (11.6) */
} cm_cupti_pool;

typedef struct cm_cupti_kernel { /* Kernel4 .. Kernel13 */
    uint32_t kind, unused[3];
    uint64_t start, end, completed;
    uint32_t device, context, stream, shape[10], correlation;
    uint64_t grid, name;
} cm_cupti_kernel;

typedef struct cm_cupti_memcpy { /* Memcpy3 .. Memcpy7 */
    uint32_t kind;
    uint8_t copy, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
} cm_cupti_memcpy;

typedef struct cm_cupti_memcpy2 { /* between devices: MemcpyPtoP .. 4 */
    uint32_t kind;
    uint8_t copy, from, to, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, from_device, from_context, to_device, to_context, correlation;
} cm_cupti_memcpy2;

typedef struct cm_cupti_memset { /* Memset .. Memset5 */
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
} cm_cupti_memset;

_Static_assert(offsetof(cm_cupti_memory2, pc) == 40 && offsetof(cm_cupti_memory2, pool) == 88 &&
                   offsetof(cm_cupti_memory2, pool_utilized) == 112,
               "MEMORY2");
_Static_assert(offsetof(cm_cupti_pool, address) == 32 && offsetof(cm_cupti_pool, utilized) == 64,
               "MEMORY_POOL");
_Static_assert(offsetof(cm_cupti_kernel, start) == 16 &&
                   offsetof(cm_cupti_kernel, correlation) == 92 &&
                   offsetof(cm_cupti_kernel, name) == 104,
               "KERNEL");
_Static_assert(offsetof(cm_cupti_memcpy, bytes) == 8 &&
                   offsetof(cm_cupti_memcpy, correlation) == 44,
               "MEMCPY");
_Static_assert(offsetof(cm_cupti_memcpy2, correlation) == 60, "MEMCPY2");
_Static_assert(offsetof(cm_cupti_memset, correlation) == 44, "MEMSET");

/* How to get from one record to the next. */
typedef enum cm_cupti_steps {
    CM_CUPTI_NO_STEPS = 0, /* neither is safe: nothing is read */
    CM_CUPTI_BY_SIZE,      /* by the lengths that the library returned */
    CM_CUPTI_BY_LIBRARY    /* by cuptiActivityGetNextRecord */
} cm_cupti_steps;

/* Gets the lengths, after subscribing. Drops cached names, whose ids belong to a capture. */
cm_cupti_steps cm_cupti_records_begin(const cm_cupti_link *link);
/* Parses `valid` bytes that CUPTI has filled. Call cm_cupti_clock_sample() first. */
void cm_cupti_records_parse(uint8_t *buffer, size_t valid);

typedef struct cm_cupti_records_counts {
    uint64_t records;      /* that became events */
    uint64_t unknown;      /* of other kinds, or broken */
    uint64_t untimed;      /* work without a time */
    uint64_t uncorrelated; /* without a correlation id */
} cm_cupti_records_counts;
cm_cupti_records_counts cm_cupti_records_get_counts(void); /* any thread; since begin */

#endif
