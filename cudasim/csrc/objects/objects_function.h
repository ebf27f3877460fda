/* What the registration of images asks of the table of kernels beyond objects.h. */
#ifndef CM_SIM_OBJECTS_FUNCTION_H
#define CM_SIM_OBJECTS_FUNCTION_H

#include "objects.h"

/* A stub of an image and its kernel's mangled name, which stays the image's. *last: of the same
 * image, NULL at first. false: no memory. */
bool cm_sim_function_register(cm_sim_function **last, const void *stub, const char *name);
/* The image is being unloaded: all that was registered into `last`. */
void cm_sim_function_unregister(cm_sim_function *last);

/* What a kernel may ask of shared memory at its launch. */
int cm_sim_function_dynamic_shared(const cm_sim_function *function);
/* Registers that a kernel is assumed to need: it was never compiled. */
enum { CM_SIM_FUNCTION_REGISTERS = 32 };

#endif
