/* What fork() does to the simulated device: see fork.c. */
#ifndef CM_SIM_FORK_H
#define CM_SIM_FORK_H

#include <stdbool.h>

/* Called by the report, which everything else needs first. false: fork() cannot be watched, and is
 * then as unsafe as with any library that has locks. */
bool cm_sim_fork_watch(void);

/* The locks of each file, taken in this order around fork(). */
void cm_sim_memory_lock(void);
void cm_sim_memory_unlock(void);
bool cm_sim_memory_in_use(void);
void cm_sim_known_lock(void);
void cm_sim_known_unlock(void);
void cm_sim_host_lock(void);
void cm_sim_host_unlock(void);

#endif
