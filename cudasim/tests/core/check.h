/* For the C clients of the simulated device's core: each is a program of named cases. */
#ifndef CHECK_H
#define CHECK_H

#include "../cases.h"

static inline cm_sim_report_device *on(int device)
{
    return &cm_sim_report_get()->device[device];
}

static inline char *alloc(int device, size_t bytes)
{
    void *made;

    EQUAL(cm_sim_alloc(device, CM_SIM_DEVICE, bytes, NULL, &made), CM_SIM_OK);
    return made;
}

#endif
