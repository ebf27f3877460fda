/* Plays CUPTI: raises callbacks with parameters of its own and looks at the events that come of it.
 *
 *   callbacks CASE FOLDER     exits with 0, or says which check failed
 *   callbacks time FOLDER     prints nanoseconds a callback
 *
 * FOLDER holds libcuda.so.1 and liba.so, libb.so, libc.so (see ../test_callbacks.py). */
#include <string.h>

#include "../../../../csrc/base/clock.h"
#include "cases.h"
#include "events.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"memory", memory},
             {"places", places},
             {"streams", streams},
             {"virtual_memory", virtual_memory},
             {"descriptions", descriptions},
             {"nested", nested},
             {"halves", halves},
             {"contexts", contexts},
             {"untold", untold},
             {"launches", launches},
             {"libraries", libraries},
             {"moves", moves},
             {"threads", threads},
             {"releases", releases},
             {"time", timing}};

int main(int count, char **arguments)
{
    folder = count > 2 ? arguments[2] : ".";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (count < 2 || strcmp(arguments[1], cases[i].name) != 0)
            continue;
        CHECK(cm_cupti_driver_enable(&link_, false) > 60);
        cm_cupti_driver_expect_records(true);
        cm_clock_init();
        double_record(true);
        resource(CM_RESOURCE_CONTEXT_CREATED, current);
        asked = 0;
        start_over();
        cases[i].run();
        return 0;
    }
    fprintf(stderr, "no such case\n");
    return 2;
}
