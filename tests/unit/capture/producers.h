/* Threads that publish events, and the captures that they do it in.
 *
 * Producer n's pair j is: [a name, in every 16th pair,] ALLOC n << 32 | j << 6, FREE of it. */
#ifndef CM_TESTS_PRODUCERS_H
#define CM_TESTS_PRODUCERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../check.h"
#include "stress.h"

/* A capture with the ring's folder and the bound that the environment names; later: its ring gets
 * no file until cm_session_share. */
extern bool later;
void start(const char *path, uint64_t ring_bytes);
void stop(void);

void nap(long microseconds);
/* How soon the collector gives rings and blocks back is the machine's affair: whoever must lose
 * nothing, and wants more of them one after the other than there are, waits here for it. */
void wait_for_room(void);

/* The capture that a thread's events are meant for, 0 = any: what a pair began in one must not end
 * up in the next. */
extern _Thread_local uint32_t only;
/* One in so many hooks dawdles between taking its place and publishing; 0 = none does. */
extern _Thread_local unsigned dawdle;

void put(tally *count, uint8_t kind, uint64_t address, int64_t size, const char *name);
void put_pair(tally *count, uint64_t n, uint64_t j);

typedef struct producer {
    pthread_t thread;
    uint64_t number, pairs;
    tally own, *count;
    pthread_barrier_t *barrier;
} producer;

/* What a thread does with its producer: all its pairs, one after the other. */
void *produce(void *argument);
/* Numbers from 1 on. */
producer *start_all(uint64_t threads, uint64_t pairs, void *(*work)(void *),
                    pthread_barrier_t *barrier);
void join_all(producer *all, uint64_t threads, uint64_t *published, uint64_t *lost);
/* The line that a mode ends with. */
void say(uint64_t published, uint64_t lost);

#endif
