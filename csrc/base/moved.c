#include "moved.h"

#include <stdbool.h>
#include <stddef.h>

#include "event.h"

/* _apply moves parameters, their gradients and buffers, each in a line of its own; the line that
 * called it tells versions apart in which two of these are one number. */
typedef struct version {
    int32_t children, parameter, buffer; /* in _apply: of submodules, then its calls of fn */
    int32_t cuda, to;                    /* their calls of _apply */
} version;

static const version versions[] = {
    {780, 805, 854, 916, 1174},   /* 2.4 */
    {900, 927, 988, 1050, 1340},  /* 2.5 */
    {903, 930, 991, 1053, 1343},  /* 2.6 */
    {915, 942, 1003, 1065, 1355}, /* 2.7 */
    {928, 955, 1020, 1082, 1369}, /* 2.8 */
    {930, 957, 1022, 1084, 1371}, /* 2.9 */
    {933, 964, 1031, 1093, 1381}, /* 2.10 */
    {934, 965, 1035, 1097, 1384}, /* 2.11 */
    {933, 964, 1034, 1096, 1383}, /* 2.12, 2.13 */
    {933, 966, 1036, 1098, 1388}, /* 2.14 */
    {933, 966, 1036, 1098, 1392}, /* 2.15 */
};

uint8_t cm_moved_at(int32_t line, int32_t caller)
{
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        const version *v = &versions[i];
        if (caller != v->children && caller != v->cuda && caller != v->to)
            continue;
        if (line == v->parameter)
            return CM_LABEL_MOVED_PARAMETER;
        if (line == v->buffer)
            return CM_LABEL_MOVED_BUFFER;
    }
    return 0;
}
