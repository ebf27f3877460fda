/* Recording host reads of values that only a kernel would have computed, as the simulated device
 * (cudasim/csrc) reports them. Does nothing unless it is preloaded. Any thread. */
#ifndef CM_SOURCES_SIMULATED_READS_H
#define CM_SOURCES_SIMULATED_READS_H

void cm_simulated_install(void);
void cm_simulated_remove(void);

#endif
