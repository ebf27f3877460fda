/* Memory totals of each device, sampled on the CUPTI thread. */
#ifndef CM_SOURCES_DEVICE_TOTALS_H
#define CM_SOURCES_DEVICE_TOTALS_H

#include <stdbool.h>

/* Emits CM_EV_DEVICE for every device with a context. force: asks NVML, which may be slow, however
 * recently it was asked, and writes the sample even if nothing has changed. */
void cm_device_totals_sample(bool force);
/* The next sample is written even if nothing has changed: a window has opened and needs one of its
 * own. Any thread; costs an atomic add. */
void cm_device_totals_write_next(void);

#endif
