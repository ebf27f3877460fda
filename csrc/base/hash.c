#include "hash.h"

#include <string.h>
#include <sys/auxv.h>

uint64_t cm_hash_secret[2] = {0x9e3779b97f4a7c15u, 0xd1b54a32d192ed03u};

/* The kernel gives every program 16 random bytes. */
__attribute__((constructor)) static void choose_secret(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random != NULL)
        memcpy(cm_hash_secret, random, sizeof cm_hash_secret);
    cm_hash_secret[1] |= 1;
}
