#include "handle.h"

#include <string.h>

#include "definitions.h"

enum { SMALL = 2 << 20, LARGE = 20 << 20 };

/* The one setting that has no key of its own. */
static int64_t large_handle(const cm_snap *s)
{
    static const char key[] = "large_segment_size_mb:";
    size_t length, left = sizeof key - 1;
    const char *text = cm_snap_text(s, s->settings, &length), *end = text + length;
    int64_t megabytes = 0;
    while ((size_t)(end - text) > left && memcmp(text, key, left) != 0)
        text++;
    for (text += left; text < end && *text >= '0' && *text <= '9' && megabytes < 1 << 20; text++)
        megabytes = megabytes * 10 + *text - '0';
    return megabytes > 0 ? megabytes << 20 : LARGE;
}

int64_t cm_handle_size(const cm_snap *s, int64_t size)
{
    int64_t large = large_handle(s);
    return size % large == 0 ? large : SMALL;
}
