/* Bags of attributes, sizes of data types. */

#include "libraries.h"

#include <stdlib.h>
#include <string.h>

bool cm_sim_attribute_set(cm_sim_attribute **bag, int name, int type, int64_t count,
                          const void *data, size_t bytes)
{
    cm_sim_attribute *made = malloc(sizeof *made + bytes);
    if (!made)
        return false;
    *made = (cm_sim_attribute){.name = name, .type = type, .count = count, .bytes = bytes};
    if (bytes)
        memcpy(made->data, data, bytes);
    cm_sim_attribute **link = bag;
    while (*link && (*link)->name != name)
        link = &(*link)->next;
    if (*link) {
        made->next = (*link)->next;
        free(*link);
    }
    *link = made;
    return true;
}

const cm_sim_attribute *cm_sim_attribute_get(const cm_sim_attribute *bag, int name)
{
    while (bag && bag->name != name)
        bag = bag->next;
    return bag;
}

void cm_sim_attribute_drop(cm_sim_attribute **bag)
{
    while (*bag) {
        cm_sim_attribute *next = (*bag)->next;
        free(*bag);
        *bag = next;
    }
}

size_t cm_sim_data_type(int type)
{
    switch (type) {
    case 1:  /* double */
    case 4:  /* complex of float */
    case 24: /* int64 */
    case 25: /* uint64 */
        return 8;
    case 5: /* complex of double */
        return 16;
    case 0:  /* float */
    case 6:  /* complex of half */
    case 10: /* int32 */
    case 12: /* uint32 */
    case 15: /* complex of bfloat16 */
        return 4;
    case 2:  /* half */
    case 14: /* bfloat16 */
    case 20: /* int16 */
    case 22: /* uint16 */
        return 2;
    default: /* int8, 8-bit floats; two of 4 bits */
        return 1;
    }
}
