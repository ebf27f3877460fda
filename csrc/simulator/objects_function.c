/* Kernels: what __cudaRegisterFunction told, and what modules gave by name.
 *
 * PyTorch registers tens of thousands while its libraries are loaded, and launches name the host
 * stub. A launch does nothing with it; only who wants the name looks it up. */
#include "objects_function.h"
#include "devices.h"
#include "sim.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

struct cm_sim_function {
    cm_sim_slot slot;
    const void *stub; /* NULL: it came from a module, and the name is ours */
    const char *name;
    int dynamic_shared; /* beyond what every kernel may have; 0: not set */
    uint32_t next;      /* of its image: number + 1 in `registered` */
};

/* The functions of one image in the order of registration, linked through `next`. */
struct cm_sim_image {
    cm_sim_function *first;
    const void *image;
};

static cm_sim_table functions = CM_SIM_TABLE(cm_sim_function);
static cm_sim_dictionary stubs; /* under the objects' lock */
