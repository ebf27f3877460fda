/* What a program's device code contains, as far as names: cubins, PTX, and what the linker made. */
#ifndef CM_SIM_DRIVER_IMAGE_H
#define CM_SIM_DRIVER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* A managed variable is one of the host's, too. */
typedef enum cm_cu_symbol_kind {
    CM_CU_KERNEL = 1,
    CM_CU_VARIABLE,
    CM_CU_MANAGED_VARIABLE
} cm_cu_symbol_kind;

/* `name` is not terminated. Returns whether to go on. */
typedef bool (*cm_cu_symbol_visit)(void *context, cm_cu_symbol_kind kind, const char *name,
                                   size_t length, size_t bytes);

typedef enum cm_cu_image_result {
    CM_CU_IMAGE_READ,   /* all its symbols were visited */
    CM_CU_IMAGE_OPAQUE, /* compressed, or of a kind that is not read: it may hold any name */
    CM_CU_IMAGE_STOPPED /* the visitor had enough */
} cm_cu_image_result;

/* As for the driver, the size is in the image: a cubin's headers, or a text's last zero. `limit`
 * bounds the search where the caller knows the size (SIZE_MAX where not). */
cm_cu_image_result cm_cu_image_read(const void *image, size_t limit, cm_cu_symbol_visit visit,
                                    void *context);

/* Whether all inputs of a linked image are read by it, one after the other. */
#define CM_CU_LINKED "cuptimem linked\n"
typedef struct cm_cu_linked {
    char magic[16];
    size_t bytes; /* of what follows; each part is a size_t and as many bytes */
} cm_cu_linked;

#endif
