/* Callback ids of driver and runtime calls, and the parameters that their callbacks receive:
 * generated from tables/cuda.txt and tables/cudart.txt, which tests compare with the vendor's
 * headers. */
#ifndef CM_SIM_CALLS_H
#define CM_SIM_CALLS_H

#include "cuda_types.h"
#include "generated/calls.h"

#endif
