/* What the libraries' surfaces (cublas.c, cudnn_*.c, cusolver.c, ...) share.
 *
 * A library's function checks its outputs for NULL, as the real ones do, and returns that
 * library's status numbers. Descriptors are host memory; only handles take device memory. */
#ifndef CM_SIM_LIBRARIES_H
#define CM_SIM_LIBRARIES_H

#include "../core/sim.h"

/* Those of the wheels that PyTorch 2.14.1 is built with and brings along. */
enum {
    CM_SIM_CUBLAS_VERSION = 130101,  /* major * 10000 + minor * 100 + patch */
    CM_SIM_CUDNN_VERSION = 92400,    /* major * 10000 + minor * 100 + patch */
    CM_SIM_CUSPARSE_VERSION = 12603, /* from here on major * 1000 */
    CM_SIM_CUSOLVER_VERSION = 12004,
    CM_SIM_CUSPARSELT_VERSION = 801,
    CM_SIM_CUFFT_VERSION = 12000,
    CM_SIM_NCCL_VERSION = 23007 /* as cuBLAS has it */
};

/* cublasGetProperty and its like: property 0 major, 1 minor, 2 patch. invalid is the status for
 * other properties, and for no place for the value. */
static inline int cm_sim_property(int version, int major_unit, int property, int *value,
                                  int invalid)
{
    if (!value || property < 0 || property > 2)
        return invalid;
    *value = property == 0   ? version / major_unit
             : property == 1 ? version % major_unit / 100
                             : version % 100;
    return 0;
}

/* Attributes by number, as the callers of cuBLASLt and cuDNN's backend set and get them. */
typedef struct cm_sim_attribute cm_sim_attribute;
struct cm_sim_attribute {
    cm_sim_attribute *next;
    int name, type;
    int64_t count;
    size_t bytes;
    unsigned char data[];
};
/* false: no memory. Replaces what has that name. */
bool cm_sim_attribute_set(cm_sim_attribute **bag, int name, int type, int64_t count,
                          const void *data, size_t bytes);
const cm_sim_attribute *cm_sim_attribute_get(const cm_sim_attribute *bag, int name);
void cm_sim_attribute_drop(cm_sim_attribute **bag);

/* Makes NVRTC whole; the first call of a process does it. Any thread, no lock held. */
void cm_sim_nvrtc_prepare(void);

/* Bytes of an element of a cudaDataType. */
size_t cm_sim_data_type(int type);

/* Bytes of workspace that a library asks for: noted as modelled, and passed through. */
static inline size_t cm_sim_modelled(const char *what, size_t bytes)
{
    cm_sim_note(CM_SIM_NOTE_MODELLED, what, bytes);
    return bytes;
}

#endif
