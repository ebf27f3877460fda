/* A CUPTI that the test plays: functions with results that it chooses, and records of any length.
 */
#ifndef PLAY_H
#define PLAY_H

#include "doubles.h"

typedef struct play_sizes {
    uint16_t memory2, pool, kernel, copy, copy2, set;
} play_sizes;

enum { PLAY_KINDS = 64 };

extern struct play {
    uint16_t size[PLAY_KINDS];
    int refuse[PLAY_KINDS]; /* ActivityEnable's result */
    bool on[PLAY_KINDS];
    unsigned enables, flushes, forced, probes, told, one_call;
    size_t dropped;       /* to be told next */
    int64_t clock_offset; /* to CLOCK_REALTIME */
    bool clock_cycles;    /* a time stamp counter of 3 per nanosecond since play_begin */
    uint64_t attribute[32];
    int register_result, struct_size_result;
    void (*on_flush)(bool forced); /* what CUPTI brings then */
    cm_cupti_request request;
    cm_cupti_complete complete;
    void (*request_v2)(uint8_t **buffer, size_t *size, size_t *most, void *info);
    void (*complete_v2)(uint8_t *buffer, size_t size, size_t valid, void *info);
} play;

extern cm_cupti_api play_api;
extern cm_cupti_link play_link;

/* A CUPTI of 12.x, subscribed, with these lengths (NULL: of 13.0), and an empty ring. */
void play_begin(const play_sizes *sizes);
/* ... that tells lengths, or steps, or has the second interface. */
void play_tells_sizes(void);
void play_v2(void);
uint64_t play_now(void); /* a stamp */

/* A buffer being filled: as CUPTI asks for it. */
typedef struct play_buffer {
    uint8_t *at;
    size_t size, most, used;
} play_buffer;
play_buffer play_ask(void);
void play_bring(play_buffer *buffer);

/* A record of this kind, all bytes behind what is filled in are 0xaa. */
uint8_t *play_record(play_buffer *buffer, uint32_t kind);
void play_memory(play_buffer *b, uint32_t operation, uint32_t correlation, uint64_t address,
                 uint64_t bytes);
void play_kernel(play_buffer *b, uint32_t correlation, const char *name, uint64_t start,
                 uint64_t end);

static inline void play_u8(uint8_t *record, size_t at, uint8_t value)
{
    record[at] = value;
}
static inline void play_u32(uint8_t *record, size_t at, uint32_t value)
{
    memcpy(record + at, &value, sizeof value);
}
static inline void play_u64(uint8_t *record, size_t at, uint64_t value)
{
    memcpy(record + at, &value, sizeof value);
}

#endif
