/* Reads traces of stress.c with the real reader and compares them with what was done. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../csrc/base/event.h"
#include "../../../csrc/trace/format.h"
#include "../../../csrc/trace/reader.h"
#include "stress.h"

typedef struct seen {
    cm_reader_state state;
    uint64_t events, lost, told, producers, names_lost, early_frees;
    uint64_t compacted;   /* events that are only counted */
    uint64_t of[NUMBERS]; /* events by producer */
    char why[256];
} seen;

/* The order of a producer's events as one growing number. */
static uint64_t place_of(const cm_event *e)
{
    uint64_t pair = (e->address & 0xffffffff) >> 6;
    int part = e->kind == CM_EV_OBJECT_NEW ? 0 : e->kind == CM_EV_ALLOC ? 1 : 2;
    return pair * 4 + (uint64_t)part;
}

/* What comes after that place if nothing is lost. */
static uint64_t next_place(uint64_t place)
{
    if (place % 4 != 2)
        return place + 1;
    return (place / 4 + 1) * 4 + ((place / 4 + 1) % 16 == 1 ? 0 : 1);
}

static bool check_name(const cm_reader *reader, const cm_event *e, seen *s)
{
    char expected[160];

    if (e->stack == 0) {
        s->names_lost++;
        return true;
    }
    snprintf(expected, sizeof expected, NAME_FORMAT, (unsigned long long)(e->address >> 32),
             (unsigned long long)((e->address & 0xffffffff) >> 6), 0);
    const char *name = cm_reader_name(reader, e->stack);
    if (name != NULL && strcmp(name, expected) == 0)
        return true;
    snprintf(s->why, sizeof s->why, "name %u is %.60s, not %.60s", e->stack,
             name ? name : "not there", expected);
    return false;
}

static bool look(const char *path, seen *s)
{
    static uint64_t last[NUMBERS];
    static uint8_t live[1 << 20]; /* blocks of HANDOFF */
    char error[512];
    cm_record record;
    int status;

    memset(s, 0, sizeof *s);
    memset(last, 0, sizeof last);
    memset(live, 0, sizeof live);
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    if (reader == NULL) {
        snprintf(s->why, sizeof s->why, "%.200s", error);
        return false;
    }
    bool good = true;
    while (good && (status = cm_reader_next(reader, &record)) == 1) {
        const cm_event *e = &record.event;
        uint64_t n = e->address >> 32;
        if (e->kind == CM_EV_LOST)
            s->told += (uint64_t)e->size;
        if (e->kind == CM_EV_COMPACTED)
            s->compacted += e->address;
        if (e->kind != CM_EV_ALLOC && e->kind != CM_EV_FREE && e->kind != CM_EV_OBJECT_NEW)
            continue;
        if (n >= NUMBERS) {
            snprintf(s->why, sizeof s->why, "address %llx", (unsigned long long)e->address);
            good = false;
            break;
        }
        s->events++;
        if (s->of[n]++ == 0)
            s->producers++;
        uint64_t place = place_of(e);
        if (n != HANDOFF) {
            if (place <= last[n]) {
                snprintf(s->why, sizeof s->why, "producer %llu: place %llu after %llu",
                         (unsigned long long)n, (unsigned long long)place,
                         (unsigned long long)last[n]);
                good = false;
            }
            if (last[n] != 0 && place != next_place(last[n]))
                s->lost++;
            last[n] = place;
        } else if (place / 4 < sizeof live) {
            if (e->kind == CM_EV_ALLOC)
                live[place / 4] = 1;
            else if (live[place / 4] == 0)
                s->early_frees++;
        }
        if (e->kind == CM_EV_OBJECT_NEW)
            good = good && check_name(reader, e, s);
        if (e->kind != CM_EV_OBJECT_NEW && (uint64_t)e->size != place / 4) {
            snprintf(s->why, sizeof s->why, "size %lld at place %llu", (long long)e->size,
                     (unsigned long long)place);
            good = false;
        }
    }
    if (good && status < 0) {
        snprintf(s->why, sizeof s->why, "%.200s", cm_reader_error(reader));
        good = false;
    }
    s->state = cm_reader_get_state(reader);
    cm_reader_close(reader);
    return good;
}

int verify(const char *path)
{
    static seen s;

    if (!look(path, &s)) {
        fprintf(stderr, "%s: %s\n", path, s.why);
        return 1;
    }
    printf("%d %llu %llu %llu %llu %llu\n", (int)s.state, (unsigned long long)s.events,
           (unsigned long long)s.told, (unsigned long long)s.producers,
           (unsigned long long)s.names_lost, (unsigned long long)s.early_frees);
    return 0;
}

static int complain(const char *path, const char *what, uint64_t is, uint64_t should)
{
    fprintf(stderr, "%s: %s: %llu, not %llu\n", path, what, (unsigned long long)is,
            (unsigned long long)should);
    return 1;
}

static int compare(const char *path, const counters *c, uint64_t capture)
{
    static seen s;
    struct stat st;
    bool ended = capture < c->ended, begun = capture < c->begun;
    uint64_t published = 0, lost = 0;

    for (int p = 0; p < PRODUCERS; p++) {
        published += c->of[capture][p].published;
        lost += c->of[capture][p].lost;
    }
    /* Killed inside of start: nothing, or a header without what comes behind it. */
    if (!begun && (stat(path, &st) < 0 || st.st_size <= CM_HEADER_SIZE))
        return published == 0 ? 0 : complain(path, "events without a trace", published, 0);
    if (!look(path, &s)) {
        fprintf(stderr, "%s: %s\n", path, s.why);
        return 1;
    }
    if (ended && s.state != CM_TRACE_COMPLETE)
        return complain(path, "state after stop", s.state, CM_TRACE_COMPLETE);
    /* Killed between ring and meta the trace knows of no ring, and there is nothing in it. */
    if (begun && s.state != CM_TRACE_COMPLETE && s.state != CM_TRACE_RECOVERED)
        return complain(path, "state", s.state, CM_TRACE_RECOVERED);
    uint64_t found = s.compacted; /* pairs of whatever producer */
    for (int p = 0; p < PRODUCERS; p++)
        found += s.of[p];
    if (found < published || found > published + (ended ? 0 : PRODUCERS))
        return complain(path, "events", found, published);
    for (int p = 0; p < PRODUCERS && s.compacted == 0; p++) {
        uint64_t should = c->of[capture][p].published;
        /* One may have been published and not been counted yet. */
        if (s.of[p] != should && (ended || s.of[p] != should + 1))
            return complain(path, "events of a producer", s.of[p], should);
    }
    if (s.told != lost && (ended || s.told < lost || s.told > lost + PRODUCERS))
        return complain(path, "lost events told", s.told, lost);
    if (lost == 0 && s.compacted == 0 && s.lost != 0)
        return complain(path, "gaps", s.lost, 0);
    return 0;
}

int verify_killed(const char *folder)
{
    char path[4096];
    uint64_t events = 0;

    snprintf(path, sizeof path, "%s/counters", folder);
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf("0 0\n"); /* killed before it had done anything */
        return 0;
    }
    struct stat st;
    if (fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(counters)) {
        printf("0 0\n");
        return 0;
    }
    const counters *c = mmap(NULL, sizeof *c, PROT_READ, MAP_SHARED, fd, 0);
    if (c == MAP_FAILED)
        return 1;
    for (uint64_t i = 0; i <= c->begun && i < CAPTURES; i++) {
        snprintf(path, sizeof path, "%s/%llu.cmem", folder, (unsigned long long)i);
        if (compare(path, c, i) != 0)
            return 1;
        for (int p = 0; p < PRODUCERS; p++)
            events += c->of[i][p].published;
    }
    printf("%llu %llu\n", (unsigned long long)c->begun, (unsigned long long)events);
    return 0;
}
