/* A hash for keys from a file. Its secret is new in each process, so no file can give all of its
 * keys one slot. It would also change the order of slots from process to process. A table that
 * shows that order uses cm_mix (base/grow.h) until a search exceeds CM_HASH_LONG, which regular
 * keys never do, and this hash from then on. */
#ifndef CM_BASE_HASH_H
#define CM_BASE_HASH_H

#include <stdint.h>

enum { CM_HASH_LONG = 1024 };

extern uint64_t cm_hash_secret[2]; /* set before main; never changes */

static inline uint64_t cm_hash(uint64_t x)
{
    __extension__ unsigned __int128 product =
        (unsigned __int128)(x ^ cm_hash_secret[0]) * cm_hash_secret[1];
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
