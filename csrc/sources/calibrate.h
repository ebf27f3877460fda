/* Where torch::autograd::Node keeps its number and its creator's thread: moved between versions, so
 * it is found out on living nodes, and once more from the machine code of an exported getter. */
#ifndef CM_SOURCES_CALIBRATE_H
#define CM_SOURCES_CALIBRATE_H

#include <stddef.h>
#include <stdint.h>

/* A Python object of a node made by the calling thread, and its _sequence_nr(). */
typedef struct cm_calibration_node {
    uintptr_t object;
    uint64_t number;
} cm_calibration_node;

/* Finds the offsets and sets them (cm_autograd_set_offsets). The nodes stay alive during the call;
 * at least four, with different numbers above zero. Without any, the getter alone decides. Returns
 * NULL, or why node runs and frees will not be recorded (static string). */
const char *cm_autograd_calibrate(const cm_calibration_node *nodes, size_t count);

#endif
