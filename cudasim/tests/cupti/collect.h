/* A client's side of activity buffers: gives some, takes them back, keeps copies of the records. */
#ifndef CUPTI_COLLECT_H
#define CUPTI_COLLECT_H

#include "client.h"

enum { MANY = 400000 };

static struct {
    pthread_mutex_t lock;
    size_t size, max_records; /* of the buffers that are given */
    size_t misalign;
    bool decline;
    unsigned given, taken, empty;
    unsigned elsewhere; /* taken back in a thread that is not `main_thread` */
    pthread_t main_thread;
    size_t count;
    uint8_t *records[MANY];
    uint32_t sizes[MANY];
} client = {.lock = PTHREAD_MUTEX_INITIALIZER, .size = 4096};

static void give(uint8_t **buffer, size_t *size, size_t *max_records)
{
    pthread_mutex_lock(&client.lock);
    *max_records = client.max_records;
    *buffer = NULL;
    *size = 0;
    if (!client.decline) {
        *size = client.size;
        *buffer = (uint8_t *)malloc(client.size + 8) + client.misalign;
        client.given++;
    }
    pthread_mutex_unlock(&client.lock);
}

static void take_back(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    cm_cupti_record *record = NULL;
    uint8_t *last = buffer;
    int result;

    pthread_mutex_lock(&client.lock);
    CHECK(!context && !stream);
    EQUAL(size, client.size);
    CHECK(valid <= size);
    client.taken++;
    client.empty += valid == 0;
    client.elsewhere += !pthread_equal(pthread_self(), client.main_thread);
    size_t before = client.count;
    while ((result = cuptiActivityGetNextRecord(buffer, valid, &record)) == OK) {
        CHECK(client.count < MANY);
        CHECK((uintptr_t)record % 8 == 0);
        if (client.count > before)
            client.sizes[client.count - 1] = (uint32_t)((uint8_t *)record - last);
        last = (uint8_t *)record;
        client.sizes[client.count] = (uint32_t)(buffer + valid - last);
        client.records[client.count] = malloc(512);
        size_t rest = (size_t)(buffer + valid - last);
        memset(client.records[client.count], 0, 512);
        memcpy(client.records[client.count], last, rest < 512 ? rest : 512);
        client.count++;
    }
    EQUAL(result, MAX_LIMIT_REACHED);
    if (client.max_records)
        CHECK(client.count - before <= client.max_records);
    free(buffer - client.misalign);
    pthread_mutex_unlock(&client.lock);
}

static inline uint32_t kind_of(size_t i)
{
    uint32_t kind;

    memcpy(&kind, client.records[i], sizeof kind);
    return kind;
}

static inline size_t count_of(uint32_t kind)
{
    size_t count = 0;

    for (size_t i = 0; i < client.count; i++)
        count += kind_of(i) == kind;
    return count;
}

/* The nth record of a kind. */
static inline const void *record_of(uint32_t kind, size_t n)
{
    for (size_t i = 0; i < client.count; i++)
        if (kind_of(i) == kind && n-- == 0)
            return client.records[i];
    CHECK(!"there is such a record");
    return NULL;
}

static inline void forget(void)
{
    pthread_mutex_lock(&client.lock);
    for (size_t i = 0; i < client.count; i++)
        free(client.records[i]);
    client.count = client.given = client.taken = client.empty = client.elsewhere = 0;
    client.main_thread = pthread_self();
    pthread_mutex_unlock(&client.lock);
}

static inline void collect(void)
{
    pthread_mutex_lock(&client.lock);
    client.main_thread = pthread_self();
    pthread_mutex_unlock(&client.lock);
    EQUAL(cuptiActivityRegisterCallbacks(give, take_back), OK);
}

static inline void flush(void)
{
    EQUAL(cuptiActivityFlushAll(0), OK);
}

static inline size_t dropped(void)
{
    size_t count;

    EQUAL(cuptiActivityGetNumDroppedRecords(NULL, 0, &count), OK);
    return count;
}

#endif
