/* Finding the offsets of torch::autograd::Node's number and creator thread. They differ between
 * versions, so they are read from living nodes and checked against the code of an exported getter.
 */
#ifndef CM_SOURCES_CALIBRATE_H
#define CM_SOURCES_CALIBRATE_H

#include <stddef.h>
#include <stdint.h>

/* A Python object of a node made by the calling thread, and its _sequence_nr(). */
typedef struct cm_calibration_node {
    uintptr_t object;
    uint64_t number;
} cm_calibration_node;

/* Finds the offsets and sets them (cm_autograd_set_offsets). Takes at least four nodes with
 * different numbers above zero, which must stay alive during the call; or none, and the getter
 * alone decides. Returns NULL, or the reason why node runs and frees will not be recorded (static
 * string). */
const char *cm_autograd_calibrate(const cm_calibration_node *nodes, size_t count);

#endif
