/* Which line of PyTorch's torch/nn/modules/module.py moves a parameter or a buffer to a device, or
 * to another type. */
#ifndef CM_BASE_MOVED_H
#define CM_BASE_MOVED_H

#include <stdint.h>

/* What Module._apply makes at this line, where the next frame of that file around it is at line
 * `caller`: CM_LABEL_MOVED_PARAMETER, CM_LABEL_MOVED_BUFFER, or 0: a gradient, or the line of a
 * version of PyTorch that is not known here. */
uint8_t cm_moved_at(int32_t line, int32_t caller);

#endif
