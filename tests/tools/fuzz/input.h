/* An input of the fuzzer: the files of one recording.
 *
 *   input = a trace as it is, or "CMFZ", then parts: u8 kind, u32 length (little-endian), bytes
 *   'T'   = the trace;  'S' = the side file <trace>.tail
 *   'R'   = a ring file without its zeros: u32 size, then runs: u32 offset, u16 length, bytes
 *
 * They are put down as FUZZ_TRACE, FUZZ_SIDE and FUZZ_RING in the working folder; a trace that
 * names FUZZ_RING in its meta finds its ring, and a ring that names FUZZ_TRACE its trace. */
#ifndef CM_TESTS_FUZZ_INPUT_H
#define CM_TESTS_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_MAGIC "CMFZ"
#define FUZZ_TRACE "trace.cmem"
#define FUZZ_SIDE "trace.cmem.tail"
#define FUZZ_RING ".cuptimem-ring-fuzz"

enum { FUZZ_RING_MAX = 4 << 20, FUZZ_RUN_HEAD = 6, FUZZ_PART_HEAD = 5 };

typedef struct fuzz_part {
    const uint8_t *at; /* NULL: not there */
    size_t length;
} fuzz_part;

typedef struct fuzz_input {
    fuzz_part trace, side, ring;
} fuzz_input;

/* A part that is cut off is as long as what is left. The parts point into data. */
fuzz_input fuzz_parse(const uint8_t *data, size_t size);

/* The size of the input in `out`; 0: more than `room` bytes. Parts may lie anywhere but in out. */
size_t fuzz_compose(const fuzz_input *input, uint8_t *out, size_t room);

uint32_t fuzz_u32(const uint8_t *at);
void fuzz_put_u32(uint8_t *at, uint32_t value);

/* Goes to the working folder, $FUZZ_FOLDER or a new one, unless it is there already. */
void fuzz_enter_folder(void);

/* Reads and sorts tables that are empty. Ends the process when one does not say so. */
void fuzz_empty_tables(void);

/* Everything that reads a trace, over this input, in the working folder. Ends the process when a
 * promise is broken. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Another input made of this one, with checksums and lengths that are right (mostly). */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t room, unsigned seed);

/* Of libFuzzer, or of driver.c. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

/* Memory runs out somewhere in here: no two readings need be the same. */
extern bool fuzz_without_memory;

#endif
