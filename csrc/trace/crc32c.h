/* CRC-32C (Castagnoli), the checksum of chunks. Any thread. */
#ifndef CM_TRACE_CRC32C_H
#define CM_TRACE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of a buffer. crc: 0, or the result for the bytes before it. */
uint32_t cm_crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same without the processor's instruction, for machines that lack it and for tests. */
uint32_t cm_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

/* Fills in the header of 16 bytes, which the payload follows. */
void cm_chunk_seal(uint8_t *chunk, int kind, size_t payload_length);

#endif
