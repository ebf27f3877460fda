/* Calls inside calls, and callbacks whose other half does not come. */
#include "../../../../csrc/base/clock.h"
#include "cases.h"
#include "events.h"

void nested(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};
    cm_channel_format format = {{32, 32, 0, 0}, 2};
    uint32_t call = ++correlation;

    /* The runtime's around the driver's: one. */
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    CHECK(cm_inflight_state() % 2 == 1);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
    CHECK(cm_inflight_state() % 2 == 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(none_left());
    /* The first call makes the context, which is seen, and memory, which is not. */
    call = ++correlation;
    tell(R, 20, CM_SITE_ENTER, &take, 0, call);
    tell(D, 386, CM_SITE_ENTER, &(cm_call_retain_context){&(uint64_t){0xc0}, 0}, 0, call);
    tell(D, 386, CM_SITE_EXIT, &(cm_call_retain_context){&(uint64_t){0xc0}, 0}, 0, call);
    tell(R, 20, CM_SITE_EXIT, &take, 0, call);
    FOUND(0xc0);
    NEW(DEVICE, 0x7000, 4096);
    CHECK(none_left());
    /* Without the driver's callbacks: the runtime's. */
    whole(R, id_of("cudaMallocArray_v3020"), &(cm_call_runtime_array){&out, &format, 10, 3}, 0);
    NEW(ARRAY, 0x7000, 240);
    whole(R, id_of("cudaMalloc3DArray_v3020"),
          &(cm_call_runtime_array_3d){&out, &format, {4, 4, 4}, 0}, 0);
    NEW(ARRAY, 0x7000, 512);
    whole(R, id_of("cudaMallocMipmappedArray_v5000"),
          &(cm_call_runtime_mipmap){&out, &format, {4, 4, 0}, 2, 0}, 0);
    NEW(ARRAY, 0x7000, 160);
    cm_pitched_pointer pitched = {0x7000, 256};
    whole(R, id_of("cudaMalloc3D_v3020"), &(cm_call_runtime_3d){&pitched, {200, 3, 2}}, 0);
    NEW(DEVICE, 0x7000, 256 * 6);
    call = ++correlation;
    tell(R, 24, CM_SITE_ENTER, &give, 0, call);
    uint64_t begun = cm_clock_now();
    CHECK(none_left());
    tell(R, 24, CM_SITE_EXIT, &give, 0, call);
    FREE(CM_DRIVER_ARRAY, 0x7000, 0);
    CHECK(last()->time <= begun); /* as of its beginning */
    whole(R, 22, &give, 1);
    whole(R, 22, &(cm_call_give){0}, 0); /* cudaFree(0) */
    CHECK(none_left());
    /* A call of the driver that calls the driver: its own affair. */
    call = ++correlation;
    cm_call_take_pitch pitch = {&out, &(size_t){64}, 60, 2};
    tell(D, 244, CM_SITE_ENTER, &pitch, 0, call);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    tell(D, 244, CM_SITE_EXIT, &pitch, 0, call);
    NEW(DEVICE, 0x7000, 128);
    CORRELATED;
    CHECK(none_left());
    /* Another tool allocates in its callback, within a call of the program. */
    call = ++correlation;
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    tell(D, 243, CM_SITE_EXIT, &take, 0, call);
    NEW(DEVICE, 0x7000, 4096);
    expect_more(CM_DRIVER_MORE_CORRELATION, call);
    /* ... in a free that then fails, which can no longer be told: counted as lost. */
    call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 1, call);
    expect(CM_EV_LOST, 0, 0, 1);
    CHECK(none_left());
}

void halves(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};

    tell(D, 243, CM_SITE_EXIT, &take, 0, ++correlation); /* begun before callbacks were on */
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 1, ++correlation);
    tell(R, 20, CM_SITE_EXIT, &take, 0, ++correlation); /* the driver's may have come */
    CHECK(none_left() && cm_inflight_state() % 2 == 0);

    uint32_t call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    CHECK(cm_inflight_state() % 2 == 1);
    cm_cupti_driver_disable(&link_);
    tell(D, 243, CM_SITE_ENTER, &take, 0, call); /* not enabled: does not come */
    CHECK(none_left());
    CHECK(cm_cupti_driver_enable(&link_, false) > 60);
    CHECK(cm_inflight_state() % 2 == 0); /* what was left over is not in flight */
    whole(D, 243, &take, 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(cm_inflight_state() % 2 == 0);
    tell(D, 245, CM_SITE_EXIT, &give, 1, call); /* the end of the first, after all */
    CHECK(none_left() && cm_inflight_state() % 2 == 0);

    /* A free that fails in another capture takes nothing back. */
    call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 1, call);
    double_record(false);
    whole(D, 243, &take, 0);
    double_record(true);
    start_over();
    tell(D, 245, CM_SITE_EXIT, &give, 1, call);
    CHECK(none_left() && cm_inflight_state() % 2 == 0);

    /* Deeper than there is room to remember. */
    for (uint32_t i = 1; i <= 9; i++)
        tell(D, 243, CM_SITE_ENTER, &take, 0, correlation + i);
    for (uint32_t i = 9; i >= 1; i--)
        tell(D, 243, CM_SITE_EXIT, &take, 0, correlation + i);
    for (uint32_t i = 9; i >= 1; i--) {
        NEW(DEVICE, 0x7000, 4096);
        expect_more(CM_DRIVER_MORE_CORRELATION, correlation + i);
    }
    CHECK(none_left() && cm_inflight_state() % 2 == 0);

    /* The first number of a subscription was the last one of the subscription before. */
    start_over();
    call = ++correlation;
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    cm_cupti_driver_disable(&link_);
    CHECK(cm_cupti_driver_enable(&link_, false) > 60);
    tell(D, 245, CM_SITE_ENTER, &give, 0, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    tell(D, 245, CM_SITE_EXIT, &give, 0, call);
    CHECK(none_left() && cm_inflight_state() % 2 == 0);

    start_over();
    double_full(true);
    whole(D, 243, &take, 0);
    whole(D, 245, &give, 1);
    double_full(false);
    CHECK(none_left());
    cm_cupti_own_thread = true; /* the CUPTI thread asks CUDA for something */
    whole(D, 243, &take, 0);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0xc9);
    cm_cupti_own_thread = false;
    CHECK(none_left() && cm_inflight_state() % 2 == 0);
}

/* Callbacks that do not say what was done: counted, and nothing is read through them. */
void untold(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    uint32_t call = ++correlation;
    const cm_callback silent = {.site = CM_SITE_EXIT, .parameters = &take, .correlation = call};

    whole(D, 243, NULL, 0);
    expect_lost();
    whole(D, 245, NULL, 0);
    expect_lost();
    whole(R, 22, NULL, 0);
    expect_lost();
    tell(D, 243, CM_SITE_ENTER, &take, 0, call);
    cm_cupti_callback_hook(NULL, D, 243, &silent);
    expect_lost();
    cm_cupti_callback_hook(NULL, D, 243, NULL);
    for (size_t i = 0; i < cm_call_count; i++) {
        whole(cm_calls[i].domain, cm_calls[i].id, NULL, 0);
        whole(cm_calls[i].domain, cm_calls[i].id, NULL, 1);
    }
    CHECK(cm_inflight_state() % 2 == 0);
    start_over();
    whole(D, 243, &(cm_call_take){NULL, 4096}, 0); /* no place for the address: nothing was given */
    CHECK(none_left());
    whole(D, 243, &take, 0);
    NEW(DEVICE, 0x7000, 4096);
    CORRELATED;
    CHECK(none_left());
}
