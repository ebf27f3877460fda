/* Activity records under libFuzzer (`make fuzz-records`) or standalone.c. The first byte chooses
 * how long records are and who steps over them; what follows is a buffer that CUPTI is said to have
 * filled, with nothing readable behind it. */
#include "../../../../csrc/sources/cupti/activity_clock.h"
#include "../../../../csrc/sources/cupti/activity_records.h"
#include "play.h"

enum { LENGTHS = 4 };

static const play_sizes lengths[LENGTHS] = {
    {112, 64, 144, 64, 64, 64},
    {120, 72, 200, 88, 96, 88},
    {128, 80, 216, 96, 96, 88},
    {128, 80, 248, 112, 96, 104},
};

/* Every input begins with a new CUPTI, so that one alone shows what it showed among others. The
 * clock is that of the first: to compare clocks takes two milliseconds. */
static void begin(int way)
{
    static bool compared;

    double_forget_names();
    play_begin(&lengths[way % LENGTHS]);
    if (way >= LENGTHS) {
        play_tells_sizes();
        play.struct_size_result = 999;
    }
    if (!compared)
        cm_cupti_clock_begin(&play_link);
    compared = true;
    CHECK(cm_cupti_records_begin(&play_link) ==
          (way >= LENGTHS ? CM_CUPTI_BY_LIBRARY : CM_CUPTI_BY_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    begin(data[0] % (2 * LENGTHS));
    uint8_t *buffer = malloc(size - 1);
    memcpy(buffer, data + 1, size - 1);
    cm_cupti_records_parse(buffer, size - 1);
    free(buffer);
    return 0;
}
