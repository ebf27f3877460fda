/* Definition records: what the ids in events and stacks stand for. frames/ writes them, the trace
 * carries them unread (trace/format.h, which has the encodings of varint and string).
 *
 * Ids are implicit: each kind counts up from its first id in the order of the log. A record refers
 * only to records before it, which a reader checks. */
#ifndef CM_BASE_DEFINITION_H
#define CM_BASE_DEFINITION_H

typedef enum cm_def_kind {
    CM_DEF_STRING = 1, /* first id 1: string */
    CM_DEF_CODE = 2,   /* first id 1: varint file string, varint qualified-name string, varint first
                          line, varint length, line table (CPython 3.11+ location table) */
    CM_DEF_STACK = 3,  /* first id CM_STACK_FIRST: varint parent stack (CM_STACK_NONE at the root),
                          varint code, varint instruction offset in code units, varint flags
                          CM_DEFF_*, varint module address, varint class-name string (0 = none) */
    CM_DEF_NAME = 4    /* first id 1: string (an RTTI name or a class name) */
} cm_def_kind;

enum {
    CM_DEFF_TRUNCATED = 1, /* root of what was kept of a deeper stack: code and offset are 0 */
    CM_DEFF_COLLAPSED = 2  /* module address is 0 because too many were seen: class name only */
};

#endif
