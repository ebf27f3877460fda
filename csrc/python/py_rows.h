/* A lent batch's items as rows, of one device or of all. With the GIL. */
#ifndef CM_PYTHON_ROWS_H
#define CM_PYTHON_ROWS_H

#include "py_reader.h"

#include "../exports/rows.h"

enum { CM_PY_ENDS_A_READ = 4096 };

/* device: bytes, or NULL: all. */
static inline bool cm_py_is_asked_for(PyObject *device, const cm_py_batch *batch,
                                      const cm_item *item)
{
    return device == NULL || item->device < 0 ||
           ((size_t)item->device < batch->replay->device_count &&
            strcmp(batch->replay->device[item->device].name, PyBytes_AS_STRING(device)) == 0);
}

/* Adds a batch; of an empty one, the next rows of what is alive at the end. */
static inline bool cm_py_add_rows(cm_rows *rows, const cm_py_batch *batch, PyObject *device)
{
    bool over;
    if (batch->count == 0)
        return cm_rows_end(rows, CM_PY_ENDS_A_READ, &over);
    for (size_t i = 0; i < batch->count; i++) {
        const cm_item *item = &batch->item[i];
        int32_t next = (size_t)item->step + 1 < batch->steps ? item->step + 1 : -1;
        if (cm_py_is_asked_for(device, batch, item) &&
            !cm_rows_add(rows, item, batch->replay, next))
            return false;
    }
    return true;
}

#endif
