#ifndef CM_TESTS_STRESS_H
#define CM_TESTS_STRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Long enough to let the definition log turn over. */
#define NAME_FORMAT "producer-%llu-pair-%llu-%0100d"

enum { CAPTURES = 64, PRODUCERS = 5, NUMBERS = 20000 };

/* The number of the producer whose blocks another thread frees. */
enum { HANDOFF = 15000 };

/* Counted after the ring's own count was: the trace holds this many, or one more. */
typedef struct tally {
    _Atomic uint64_t published, lost;
} tally;

/* What a process that is going to be killed has done, in a page of its own. */
typedef struct counters {
    _Atomic uint64_t begun, ended;
    tally of[CAPTURES][PRODUCERS];
} counters;

/* The modes of stress_threads.c. */
int hold_and_wait(const char *path, uint64_t threads);
int churn(const char *path, uint64_t threads, uint64_t times);
int one_by_one(const char *path, uint64_t threads);
int burst(const char *path, uint64_t threads);
int together(const char *path, uint64_t threads);
int exits(const char *path);

/* The modes of stress_room.c. */
int take_room(const char *path);
int move(const char *path, uint64_t threads, uint64_t pairs, bool by_collector);
int never_move(const char *path);

/* Set by a mode that wants to do something while the collector reads the heads (killpoints.c). */
extern void (*stress_between)(void);

/* Set by a mode that wants to do something between an opening and the look at it (openings.c). */
extern void (*stress_opened)(const char *path, int fd);

/* Prints: state events lost producers names-lost free-before-alloc. Exits with 1 when a producer's
 * events are not in their order, or one is there twice. */
int verify(const char *path);

/* All captures of `stress kill FOLDER` against its counters. */
int verify_killed(const char *folder);

#endif
