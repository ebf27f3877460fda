#include "recording.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>

static const _Atomic uint32_t off;
const _Atomic uint32_t *cm_recording = &off;

static _Atomic uint32_t *word; /* what cm_recording points at; NULL before init */
static uint32_t before_hold;
/* Taken to turn recording on, and while hooks are on hold. */
static pthread_mutex_t switching = PTHREAD_MUTEX_INITIALIZER;

int cm_recording_init(void)
{
    if (word != NULL)
        return 0;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return -errno;
    /* Where the kernel lacks this (before 4.14), the fork handler alone turns a child off. */
    madvise(page, 4096, MADV_WIPEONFORK);
    cm_recording = word = page;
    return 0;
}

void cm_recording_set(uint32_t capture)
{
    if (word == NULL)
        return;
    if (capture != 0)
        pthread_mutex_lock(&switching);
    atomic_store_explicit(word, capture, memory_order_seq_cst);
    if (capture != 0)
        pthread_mutex_unlock(&switching);
}

void cm_recording_hold(void)
{
    pthread_mutex_lock(&switching);
    before_hold = atomic_load(word);
    while (before_hold != 0 && !atomic_compare_exchange_weak(word, &before_hold, CM_RECORDING_HELD))
        ;
}

void cm_recording_release(void)
{
    uint32_t now = CM_RECORDING_HELD;

    /* Unless recording was turned off meanwhile. */
    atomic_compare_exchange_strong(word, &now, before_hold);
    pthread_mutex_unlock(&switching);
}

void cm_recording_forget(void)
{
    if (word == NULL)
        return;
    atomic_store(word, 0);
    pthread_mutex_init(&switching, NULL);
}
