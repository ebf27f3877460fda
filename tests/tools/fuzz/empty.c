/* Tables that have nothing yet have no address: what reads and sorts them adds nothing to NULL and
 * passes none on. clang's sanitizer objects to both, gcc's to the second. */
#include "../../../csrc/analysis/census.h"
#include "../../../csrc/base/grow.h"
#include "../../../csrc/compact/compact.h"
#include "../../../csrc/heap/blocks.h"
#include "../../check.h"
#include "input.h"

static int never(const void *left, const void *right)
{
    CHECK(left == right);
    return 0;
}

static bool put(void *context, uint32_t thread, const cm_event *event)
{
    *(uint64_t *)context += event->address + thread;
    return true;
}

void fuzz_empty_tables(void)
{
    const cm_blocks blocks = {0};
    const cm_census census = {0};
    const cm_event event = {.kind = CM_EV_ALLOC, .address = 0x1000, .size = 64};
    size_t count = 1, at = 0;
    uint64_t sum = 0;

    CHECK(cm_blocks_next(&blocks, &at) == NULL);
    CHECK(cm_census_find(&census, 7, &count) == NULL && count == 0);
    cm_sort(NULL, 0, sizeof(uint64_t), never);
    cm_compaction *compaction = cm_compact_new(put, &sum);
    CHECK(compaction != NULL && cm_compact_add(compaction, 3, &event) &&
          cm_compact_flush(compaction));
    CHECK(sum >= 0x1003);
    cm_compact_free(compaction);
}
