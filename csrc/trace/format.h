/* The trace file, byte by byte. docs/trace-format.md says the same in prose; this is where it is
 * decided. Integers are little-endian; "varint" is LEB128 (7 bits a byte, low first, at most 10
 * bytes), "svarint" a zigzag varint. No struct is ever dumped.
 *
 *   file   = file header, chunk, chunk, ...
 *   header = "CUPTIMEM" (8 bytes), u16 major, u16 minor, u32 0
 *   chunk  = u32 CM_CHUNK_MAGIC, u8 kind, u8 0, u16 0, u32 payload length, u32 CRC-32C of these
 *            12 bytes and the payload, payload (at most CM_CHUNK_MAX bytes)
 *
 * A reader refuses another major, reads any minor, and skips chunk kinds that it does not know. */
#ifndef CM_TRACE_FORMAT_H
#define CM_TRACE_FORMAT_H

#define CM_FORMAT_MAGIC "CUPTIMEM"
enum { CM_FORMAT_MAJOR = 1, CM_FORMAT_MINOR = 0, CM_HEADER_SIZE = 16 };

#define CM_CHUNK_MAGIC 0x4b484343u /* "CCHK" */
enum { CM_CHUNK_HEADER_SIZE = 16, CM_CHUNK_MAX = 1 << 26 };

enum { CM_COVER_RING_MAX = 0xfffff }; /* highest ring number that a cover may name */
enum { CM_META_MAX = 4096 };          /* entries of all META chunks together */

typedef enum cm_chunk_kind {
    CM_CHUNK_META = 1,  /* varint n, then n x (string key, string value); later values win */
    CM_CHUNK_BATCH = 2, /* see below */
    CM_CHUNK_END = 3    /* the capture was stopped: varint events, varint lost events, varint lost
                           stacks, string reason ("" = stop() was called) */
} cm_chunk_kind;

/* The reason in the end chunk of a trace whose process was killed and whose ring was appended. */
#define CM_END_RECOVERED "recovered"

/* string = varint length, UTF-8 bytes.
 *
 * batch = u64 ticks, u64 monotonic ns, u64 realtime ns      one anchor, taken when it was drained
 *         varint length, definitions                         records as below, whole
 *         varint count, varint length, events                encoded as encode.h says; starts
 *                                                            afresh in every batch
 *         varint n, n x (varint ring, varint position)       every ring this chunk covers, up to
 *                                                            which position: what a reader of the
 *                                                            ring file after a kill must skip
 *         varint position                                    the same for the definition log
 *
 * Definition records. Ids are implicit: each kind counts up from its first id in the order of the
 * log. A reader checks that what a record refers to came before it. */
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
    CM_DEFF_FOLDED = 2     /* module address is 0 because too many were seen: class name only */
};

#endif
