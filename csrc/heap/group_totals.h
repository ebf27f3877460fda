/* Bytes of driver allocations by who made them, now and at kept moments ("pictures"). A picture
 * costs nothing but a higher number: what a group had then is saved when it first changes
 * afterwards. What becomes known later of an allocation (its library; that PyTorch holds it) is put
 * right in the pictures that it is on, too. One owner, any thread. */
#ifndef CM_HEAP_GROUP_TOTALS_H
#define CM_HEAP_GROUP_TOTALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../analysis/ledger.h"

typedef enum cm_picture {
    CM_PICTURE_PEAK = 0,
    CM_PICTURE_QUIET_PEAK,
    CM_PICTURE_END,
    CM_PICTURE_ASKED,
    CM_PICTURES
} cm_picture;

#define CM_ACCOUNT_MOST ((int64_t)1 << 60) /* sums of more are damage */
enum { CM_ACCOUNT_NONE = UINT32_MAX };
enum { CM_ACCOUNT_HOST = 256, CM_ACCOUNT_DEVICES }; /* index + 128 for devices; host memory */

typedef struct cm_account {
    cm_driver_line line; /* now */
    uint16_t device;     /* place in cm_accounts.device */
    struct {
        uint64_t number;
        int64_t bytes;
        uint64_t count;
    } saved[CM_PICTURES];
} cm_account;

/* What an allocation is accounted to. */
typedef struct cm_account_key {
    uint32_t library, stack;
    uint16_t device;
    uint8_t kind;
    bool torch, backward;
} cm_account_key;

typedef struct cm_accounts {
    struct cm_account_device {
        bool seen;
        int64_t bytes, peak; /* of kinds that take memory there */
        uint64_t picture[CM_PICTURES];
    } device[CM_ACCOUNT_DEVICES];
    uint64_t clock; /* numbers allocations and pictures in their order */
    cm_account *account;
    size_t count, capacity;
    uint32_t *slot; /* hash: account + 1 */
    size_t slots;
} cm_accounts;

/* Whether this kind takes memory of the device that it is told with. */
bool cm_accounts_takes(uint8_t kind);
bool cm_accounts_is_host(uint8_t kind);

void cm_accounts_clear(cm_accounts *accounts); /* all zero is an empty one */
bool cm_accounts_copy(cm_accounts *copy, const cm_accounts *accounts); /* false: out of memory */
/* The account's number; CM_ACCOUNT_NONE: out of memory. */
uint32_t cm_accounts_find(cm_accounts *accounts, const cm_account_key *key);
cm_account_key cm_accounts_key(const cm_accounts *accounts, uint32_t account);
/* One allocation comes (sign 1) or goes (-1). false: sums of an impossible size. */
bool cm_accounts_add(cm_accounts *accounts, uint32_t account, int64_t size, int sign);
/* An allocation that lived from clock birth to death (0: still lives) belongs to another account.
 * Of the same device. */
void cm_accounts_move(cm_accounts *accounts, uint32_t from, uint32_t to, int64_t size,
                      uint64_t birth, uint64_t death);
/* The newest picture of the account's device, by the clock; 0: none, or no account. */
uint64_t cm_accounts_latest(const cm_accounts *accounts, uint32_t account);
void cm_accounts_take_picture(cm_accounts *accounts, uint16_t device, cm_picture picture);
/* Bytes of PyTorch's in that picture, of kinds that take memory. */
int64_t cm_accounts_torch(const cm_accounts *accounts, uint16_t device, cm_picture picture);
/* The lines of a device: with picture < CM_PICTURES what takes memory there and is not PyTorch's,
 * at that moment; else everything now. Largest first; the caller frees. false: out of memory. */
bool cm_accounts_lines(const cm_accounts *accounts, uint16_t device, cm_picture picture,
                       cm_driver_line **lines, size_t *count);

#endif
