/* Inside of the driver map: what driver_map.c (allocations), driver_map_events.c (what happens to
 * them) and driver_totals.c (pools, devices as a whole) share. bool functions: false with
 * map->error. */
#ifndef CM_HEAP_DRIVER_MAP_PARTS_H
#define CM_HEAP_DRIVER_MAP_PARTS_H

#include "driver_map.h"

#define CM_DRIVER_SIZE_MOST ((int64_t)1 << 48) /* as for blocks: more is damage */

extern const char cm_driver_map_no_memory[], cm_driver_map_bad_size[];
bool cm_driver_map_fail(cm_driver_map *map, const char *why); /* false */

/* Where an address or handle of this kind is looked up; CM_DRIVER_SPACES: nowhere. */
int cm_driver_map_space(uint8_t kind);
uint64_t cm_driver_map_key(uint64_t address);
bool cm_driver_map_lookup(const cm_driver_map *map, int space, uint64_t address, uint32_t *slot);

/* A new allocation, alive; pointers to allocations are then no longer valid. */
bool cm_driver_map_make(cm_driver_map *map, cm_driver_allocation fresh, uint32_t library,
                        uint32_t stack, uint32_t *slot);
/* Its end, for now: its thread may record that it failed. */
bool cm_driver_map_end(cm_driver_map *map, uint32_t slot);
/* It lives, again or for the first time. */
bool cm_driver_map_revive(cm_driver_map *map, uint32_t slot);
/* Once nothing refers to what ended. */
void cm_driver_map_release_slot(cm_driver_map *map, uint32_t slot);
/* At once and for good: no record can undo it. */
bool cm_driver_map_end_for_good(cm_driver_map *map, uint32_t slot);
bool cm_driver_map_end_handle(cm_driver_map *map, uint32_t slot, bool *ended);

bool cm_driver_map_is_torch(const cm_driver_map *map, uint32_t library);
bool cm_driver_map_make_torch(cm_driver_map *map, uint32_t slot);
bool cm_driver_map_set_library(cm_driver_map *map, uint32_t slot, uint32_t library);
bool cm_driver_map_lies_in(const cm_driver_allocation *allocation, uint64_t address, int64_t size);

void cm_driver_map_see_pool(cm_driver_map *map, const cm_event *event);
void cm_driver_map_see_device(cm_driver_map *map, const cm_event *event);

#endif
