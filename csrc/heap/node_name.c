#include "node_name.h"

#include <stdio.h>
#include <string.h>

void cm_node_name(const char *rtti, char *out, size_t size)
{
    const char *c = rtti, *last = NULL;
    size_t last_length = 0, left = strlen(rtti);
    if (*c == '*') /* a type that is local to its library */
        c++;
    if (*c == 'N')
        c++;
    if (strncmp(c, "St", 2) == 0)
        c += 2;
    left -= (size_t)(c - rtti);
    while (*c >= '1' && *c <= '9') {
        size_t length = 0;
        while (*c >= '0' && *c <= '9' && length < left) {
            length = length * 10 + (size_t)(*c - '0');
            c++;
            left--;
        }
        if (length == 0 || length > left)
            break;
        last = c;
        last_length = length;
        c += length;
        left -= length;
    }
    if (last != NULL)
        snprintf(out, size, "%.*s", (int)(last_length < size ? last_length : size), last);
    else
        snprintf(out, size, "%s", rtti);
}
