/* Host reads of values that only a kernel would have computed: the simulated device
 * (csrc/simulator) tells them. Nothing where it is not preloaded. Any thread. */
#ifndef CM_SOURCES_SIMULATED_READS_H
#define CM_SOURCES_SIMULATED_READS_H

void cm_simulated_install(void);
void cm_simulated_remove(void);

#endif
