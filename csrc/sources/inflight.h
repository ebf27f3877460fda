/* Calls that give out or take back memory of a device, counted as they begin and end: a reading of
 * the device's totals means something only where none was in flight. */
#ifndef CM_SOURCES_INFLIGHT_H
#define CM_SOURCES_INFLIGHT_H

#include <stdint.h>

/* Such a call begins; returns what its end must be told. Calls that outlive their session change no
 * other's count. */
uint32_t cm_driver_move_begins_hook(void);
void cm_driver_move_ends_hook(uint32_t session);
/* Counts anew; not a hook. */
void cm_driver_moves_anew(void);
uint32_t cm_driver_session(void);
/* Odd or changed between two looks: the driver was giving out or taking back memory. */
uint64_t cm_driver_moves(void);

#endif
