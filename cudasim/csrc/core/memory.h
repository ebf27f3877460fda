/* What accounts (account.c), blocks (memory.c) and virtual memory (virtual.c) share. Everything
 * here is called under cm_sim_memory_lock() (fork.h), unless its comment states otherwise. */
#ifndef CM_SIM_MEMORY_H
#define CM_SIM_MEMORY_H

#include "report.h"
#include "space.h"

typedef enum cm_sim_region_kind {
    CM_SIM_REGION_BLOCK = 1, /* one allocation: memory.c */
    CM_SIM_REGION_SLAB,      /* many small ones: memory.c */
    CM_SIM_REGION_RESERVED   /* addresses of virtual memory: virtual.c */
} cm_sim_region_kind;

/* Owns the chunks from start on; begins the structure of each kind. */
typedef struct cm_sim_region {
    cm_sim_region_kind kind;
    int device;
    uintptr_t start;
    size_t bytes; /* whole chunks */
} cm_sim_region;

/* CM_SIM_OK, CM_SIM_NOT_INITIALIZED, CM_SIM_NO_DEVICE, CM_SIM_INVALID_DEVICE. Needs no lock. */
int cm_sim_device_check(int device);
/* In which context what is allocated now on a device lives. */
uint16_t cm_sim_context_here(int device);
/* Gives back what lives in a context, `pools` too or not: memory.c. */
void cm_sim_blocks_end(int device, unsigned context, bool pools);
/* What a device has for memory of that kind. */
uint64_t cm_sim_account_most(int device, cm_sim_kind kind);
/* Charges `charge`; if the device has no room, counts and logs a refusal of `bytes`. There is room
 * for all managed memory: the driver moves its pages to the host. */
bool cm_sim_account_take(int device, size_t charge, size_t bytes, cm_sim_kind kind);
void cm_sim_account_give(int device, size_t charge, cm_sim_kind kind);
/* Counts that memory was given or taken back, once it is sure, and logs it. */
void cm_sim_account_given(cm_sim_log_op op, const cm_sim_block *block, int64_t change);
void cm_sim_account_returned(cm_sim_log_op op, const cm_sim_block *block, int64_t change);
/* The host has no address space or memory left: counts, notes, logs. CM_SIM_OUT_OF_MEMORY. */
int cm_sim_account_limited(int device, const char *what, size_t bytes, cm_sim_kind kind);
/* The owner: a number for a library's name (NULL: the program, 0), and what it has. */
uint8_t cm_sim_owner(const char *name);
void cm_sim_owner_gets(uint8_t owner, int device, size_t charged);
void cm_sim_owner_loses(uint8_t owner, int device, size_t charged);
void cm_sim_account_log(cm_sim_log_op op, const cm_sim_block *block, int64_t change,
                        uint64_t extra);

/* The mapping at an address. false: only reserved. */
bool cm_sim_mapping_find(const cm_sim_region *region, uintptr_t address, cm_sim_block *block);
/* Whether a range may be accessed: all of it mapped, with access. */
bool cm_sim_mapping_reach(const cm_sim_region *region, uintptr_t address, size_t bytes, bool write);
/* Whether any virtual memory is there, for fork(). */
bool cm_sim_virtual_in_use(void);

/* Whether all of a range may be accessed, and on which device it is. Takes the lock. */
bool cm_sim_reach(const void *address, size_t bytes, bool write, int *device);

#endif
