/* Contexts that are made, found and ended. */
#include "cases.h"
#include "events.h"

void contexts(void)
{
    uint64_t out = 0xc1;
    cm_call_make_context make = {&out, 0, 4};
    cm_call_retain_context retain = {&(uint64_t){0xc2}, 6};
    uint32_t call = ++correlation;

    tell(D, 235, CM_SITE_ENTER, &make, 0, call);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0xc1);
    tell(D, 235, CM_SITE_EXIT, &make, 0, call);
    NEW(CONTEXT, 0xc1, 0);
    whole(D, 386, &retain, 0);
    FOUND(0xc2);
    CHECK(last()->device_index == 6);
    whole(D, 386, &retain, 0); /* one more reference */
    whole(D, id_of("cuDevicePrimaryCtxRelease_v2"), &(cm_call_reset){6}, 0);
    CHECK(none_left());
    call = ++correlation;
    tell(D, 322, CM_SITE_ENTER, &(cm_call_give){0xc1}, 0, call);
    resource(CM_RESOURCE_CONTEXT_DESTROYED, (void *)0xc1);
    tell(D, 322, CM_SITE_EXIT, &(cm_call_give){0xc1}, 0, call);
    FREE(CM_DRIVER_CONTEXT, 0xc1, 0);
    CHECK(none_left());
    whole(D, 545, &(cm_call_reset){6}, 0); /* known by its device */
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    whole(D, 386, &retain, 0); /* at the same address again */
    FOUND(0xc2);
    whole(D, 545, &(cm_call_reset){6}, 1);
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    expect_more(CM_DRIVER_MORE_FAILED, 1);
    resource(CM_RESOURCE_CONTEXT_DESTROYED, (void *)0xc2); /* it was alive still */
    FREE(CM_DRIVER_CONTEXT, 0xc2, 0);
    whole(D, 322, &(cm_call_give){0xc7}, 0); /* from before */
    FREE(CM_DRIVER_CONTEXT, 0xc7, 0);
    current = (void *)0xc3;
    whole(R, 164, &(cm_call_none){0}, 0); /* cudaDeviceReset, nothing of the driver's seen */
    FREE(CM_DRIVER_CONTEXT, 0xc3, 0);
    call = ++correlation;
    current = (void *)0xc4;
    tell(R, 164, CM_SITE_ENTER, &(cm_call_none){0}, 0, call);
    tell(D, 545, CM_SITE_ENTER, &(cm_call_reset){9}, 0, call);
    tell(D, 545, CM_SITE_EXIT, &(cm_call_reset){9}, 0, call);
    tell(R, 164, CM_SITE_EXIT, &(cm_call_none){0}, 0, call);
    FREE(CM_DRIVER_CONTEXT, 0xc4, 0);
    CHECK(none_left());
    /* Made while nothing is recorded: told when it is seen in use. */
    see_contexts = true;
    cm_call_take take = {&out, 10};
    double_record(false);
    resource(CM_RESOURCE_CONTEXT_CREATED, (void *)0x1006);
    whole(D, 235, &(cm_call_make_context){&(uint64_t){0x1006}, 0, 6}, 0);
    double_record(true);
    start_over();
    current = (void *)0x1006;
    context_uid = 6;
    whole(D, 243, &take, 0);
    FOUND(0x1006);
    NEW(DEVICE, 0xc1, 10);
    CORRELATED;
    current = (void *)0x1005;
    context_uid = 5;
    for (int i = 0; i < 3; i++) { /* made where nobody looked: told once, before what lies in it */
        whole(D, 243, &take, 0);
        if (i == 0)
            FOUND(0x1005);
        NEW(DEVICE, 0xc1, 10);
        CORRELATED;
    }
    whole(R, 164, &(cm_call_none){0}, 0);
    FREE(CM_DRIVER_CONTEXT, 0x1005, 0);
    whole(D, 243, &take, 0); /* the next one, with the same number */
    FOUND(0x1005);
    NEW(DEVICE, 0xc1, 10);
    CORRELATED;
    see_contexts = false;
    for (uint64_t i = 0; i < 200; i++) { /* more than there is room to know: told all the same */
        start_over();
        whole(D, 235, &(cm_call_make_context){&(uint64_t){0xd000 + i}, 0, 0}, 0);
        NEW(CONTEXT, 0xd000 + i, 0);
    }
}
