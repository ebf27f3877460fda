/* Shared by the driver map's files: driver_map.c (allocations), driver_map_events.c (events) and
 * driver_totals.c (pools, totals of devices). bool functions: false with map->error. */
#ifndef CM_HEAP_DRIVER_MAP_PARTS_H
#define CM_HEAP_DRIVER_MAP_PARTS_H

#include "driver_map.h"

#define CM_DRIVER_SIZE_MOST ((int64_t)1 << 48) /* as for blocks; more is damage */

extern const char cm_driver_map_no_memory[], cm_driver_map_bad_size[];
bool cm_driver_map_fail(cm_driver_map *map, const char *why); /* returns false */

/* The space of addresses or handles of this kind; CM_DRIVER_SPACES: none. */
int cm_driver_map_space(uint8_t kind);
uint64_t cm_driver_map_key(uint64_t address);
bool cm_driver_map_lookup(const cm_driver_map *map, int space, uint64_t address, uint32_t *slot);

/* Adds a live allocation; invalidates pointers to allocations. */
bool cm_driver_map_make(cm_driver_map *map, cm_driver_allocation fresh, uint32_t library,
                        uint32_t stack, uint32_t *slot);
/* Ends it; its thread may still record that the free failed. */
bool cm_driver_map_end(cm_driver_map *map, uint32_t slot);
/* Makes it live, again or for the first time. */
bool cm_driver_map_revive(cm_driver_map *map, uint32_t slot);
/* Only once nothing refers to the ended allocation. */
void cm_driver_map_release_slot(cm_driver_map *map, uint32_t slot);
/* Ends it at once; no record can undo that. */
bool cm_driver_map_end_for_good(cm_driver_map *map, uint32_t slot);
bool cm_driver_map_end_handle(cm_driver_map *map, uint32_t slot, bool *ended);

bool cm_driver_map_is_torch(const cm_driver_map *map, uint32_t library);
bool cm_driver_map_make_torch(cm_driver_map *map, uint32_t slot);
bool cm_driver_map_set_library(cm_driver_map *map, uint32_t slot, uint32_t library);
bool cm_driver_map_lies_in(const cm_driver_allocation *allocation, uint64_t address, int64_t size);

void cm_driver_map_apply_pool(cm_driver_map *map, const cm_event *event);
void cm_driver_map_apply_device(cm_driver_map *map, const cm_event *event);

#endif
