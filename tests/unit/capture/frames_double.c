/* Stands in for csrc/frames where a test needs no Python: names only, in the order of the log. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "../../../csrc/frames/deflog.h"
#include "../../../csrc/frames/walk.h"
#include "../../../csrc/base/bytes.h"
#include "../../../csrc/trace/format.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t names;

uint32_t cm_walk_capture_hook(cm_walk *walk)
{
    (void)walk;
    return 0;
}

/* A new id for every call: that makes the log grow as fast as the test likes. */
uint32_t cm_name_intern_text_hook(const char *text)
{
    uint8_t record[512], *p = record;
    size_t length = strlen(text);
    uint32_t id = 0;

    *p++ = CM_DEF_NAME;
    p = cm_put_bytes(p, text, length);
    pthread_mutex_lock(&mutex);
    if (cm_deflog_append_hook(record, (size_t)(p - record)))
        id = ++names;
    pthread_mutex_unlock(&mutex);
    return id;
}

int cm_frames_begin(void)
{
    pthread_mutex_lock(&mutex);
    names = 0;
    pthread_mutex_unlock(&mutex);
    return 0;
}

void cm_frames_before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

void cm_frames_after_fork(void)
{
    pthread_mutex_unlock(&mutex);
}

cm_frames_counts cm_frames_get_counts(void)
{
    pthread_mutex_lock(&mutex);
    cm_frames_counts counts = {.names = names};
    pthread_mutex_unlock(&mutex);
    return counts;
}
