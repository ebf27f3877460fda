/* The trace file, byte by byte; docs/trace-format.md explains it. Integers are little-endian;
 * "varint" is LEB128 (7 bits a byte, low first, at most 10 bytes), "svarint" a zigzag varint. No
 * struct is ever dumped.
 *
 *   file   = file header, chunk, chunk, ...
 *   header = "CUPTIMEM" (8 bytes), u16 major, u16 minor, u32 0
 *   chunk  = u32 CM_CHUNK_MAGIC, u8 kind, u8 0, u16 0, u32 payload length, u32 CRC-32C of these
 *            12 bytes and the payload, payload (at most CM_CHUNK_MAX bytes)
 *
 * A reader refuses another major version, reads any minor one, and skips chunk kinds that it does
 * not know. 1.1 added the side file and compacted events; 1.2 requested sizes, segments, host
 * reads, frees without a device; 1.3 driver events; 1.4 source lines; 1.5 labels, holders,
 * operators. */
#ifndef CM_TRACE_FORMAT_H
#define CM_TRACE_FORMAT_H

#include "../base/definition.h"

#define CM_FORMAT_MAGIC "CUPTIMEM"
enum { CM_FORMAT_MAJOR = 1, CM_FORMAT_MINOR = 5, CM_HEADER_SIZE = 16 };

#define CM_CHUNK_MAGIC 0x4b484343u /* "CCHK" */
enum { CM_CHUNK_HEADER_SIZE = 16, CM_CHUNK_MAX = 1 << 26 };

enum { CM_COVER_RING_MAX = 0xfffff }; /* highest ring number that a cover may name */
enum { CM_META_MAX = 4096 };          /* entries of all META chunks together */

typedef enum cm_chunk_kind {
    CM_CHUNK_META = 1,  /* varint n, then n x (string key, string value); later values win */
    CM_CHUNK_BATCH = 2, /* see below */
    CM_CHUNK_END = 3,   /* the capture was stopped: varint events, varint lost events, varint lost
                           stacks, string reason ("" = stop() was called) */
    CM_CHUNK_LINES = 4, /* source text, since 1.4: varint n, then n x (varint code, varint line,
                           varint text, [string]). Texts are numbered from 1 in the whole trace. A
                           new number is followed by its text, the line without its end. The first
                           text of a code's line counts. Lines of a code that was not defined
                           before the chunk are ignored. */
    CM_CHUNK_TREE = 5   /* a tree sample (tree_chunk.h), since 1.5. It belongs to no batch */
} cm_chunk_kind;

#define CM_SIDE_SUFFIX ".tail"
#define CM_SIDE_MAGIC "CUPTSIDE"
enum { CM_SIDE_VERSION = 1, CM_SIDE_HEADER = 4096, CM_SIDE_PARTS_MAX = 64 };

/* The reason in the end chunk of a trace whose process was killed and whose ring was appended. */
#define CM_END_RECOVERED "recovered"

/* string = varint length, UTF-8 bytes.
 *
 * batch = u64 ticks, u64 monotonic ns, u64 realtime ns      one anchor, taken when it was drained
 *         varint length, definitions                         records of definition.h, whole
 *         varint count, varint length, events                encoded as in encode.h; every batch
 *                                                            starts with empty predictors
 *         varint n, n x (varint ring, varint position)       every ring that this chunk covers, and
 *                                                            up to which position: a reader of the
 *                                                            ring file after a kill starts there
 *         varint position                                    the same for the definition log
 *         [varint serial]                                    since 1.1, see below
 *
 * The side file. A trace past its size limit has a second file, its path with CM_SIDE_SUFFIX, until
 * its end is written:
 *
 *   side file = "CUPTSIDE" (8 bytes), u32 version, u32 parts, u64 bytes of a part, u64 ring.id of
 *               the trace, zeros up to CM_SIDE_HEADER bytes, parts one after the other
 *   part      = chunk, chunk, ...                            all BATCH; what follows the last
 *                                                            one is left from an earlier use
 *
 * Its batches are numbered from 2 on, in the order of time; serial is their number. In a batch of
 * the trace, serial is the last of them whose events the trace contains: whole (appended at the
 * end) or compacted (compact/compact.h). 1: a side file was made. Batches in both count once. The
 * side file's batches with the next numbers, up to the first gap, belong to the trace. Positions
 * may go back, for definitions of the side file's batches are written to the trace at once: the
 * highest counts. */

#endif
