/* What is asked for: launches, and ids that a release knows. */
#include "cases.h"
#include "events.h"

void launches(void)
{
    void *launch[] = {[5] = (void *)0x9}; /* the stream */
    cm_launch_config config = {.stream = (void *)0x8};
    cm_call_launch_ex ex = {&config};

    whole(D, 307, launch, 0);
    CHECK(none_left()); /* not asked for */
    cm_cupti_driver_disable(&link_);
    cm_cupti_driver_enable(&link_, true);
    const struct {
        const char *name;
        const void *parameters;
        uint64_t stream;
        int kind;
    } calls[] = {
        {"cuLaunchKernel", launch, 9, CM_WORK_KERNEL},
        {"cuLaunchKernelEx_ptsz", &ex, 8, CM_WORK_KERNEL},
        {"cuLaunchKernelEx_ptsz", &(cm_call_launch_ex){&(cm_launch_config){.shared = 0}}, 2,
         CM_WORK_KERNEL},
        {"cuGraphLaunch", (void *[]){NULL, (void *)5}, 5, CM_WORK_GRAPH},
        {"cuMemcpyHtoDAsync_v2", (void *[]){[3] = (void *)4}, 4, CM_WORK_COPY},
        {"cuMemcpyDtoH_v2", &(cm_call_none){0}, 0, CM_WORK_COPY},
        {"cuMemcpyDtoH_v2_ptds", &(cm_call_none){0}, 2, CM_WORK_COPY},
        {"cuMemsetD2D32Async", (void *[]){[5] = (void *)3}, 3, CM_WORK_SET},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        whole(D, id_of(calls[i].name), calls[i].parameters, 0);
        const cm_event *e = next();
        CHECK(e->kind == CM_EV_LAUNCH && e->address == calls[i].stream && e->size == correlation &&
              e->flags == calls[i].kind && e->stack == CM_STACK_FIRST && e->device_index == 3);
    }
    whole(D, 307, launch, 700);
    CHECK(none_left());
}

/* An older release does not know the newest ids. */
void releases(void)
{
    int all = cm_cupti_driver_enable(&link_, true);

    cm_cupti_driver_disable(&link_);
    for (int domain = 0; domain < 4; domain++)
        for (int id = 0; id < CM_CALL_IDS; id++)
            CHECK(!enabled[domain][id]);
    newest = 600;
    int older = cm_cupti_driver_enable(&link_, true);
    CHECK(all == (int)cm_call_count + 2 && older > 100 && older < all);
    CHECK(cm_cupti_driver_enable(&(cm_cupti_link){.api = &api}, true) == 0); /* no subscription */
    deaf = true; /* contexts alone are no driver level */
    CHECK(cm_cupti_driver_enable(&link_, true) == 0);
    cm_cupti_callback_hook(NULL, D, CM_CALL_IDS + 5, &(cm_callback){0});
    cm_cupti_callback_hook(NULL, 4, 1, &(cm_callback){0});
    cm_cupti_callback_hook(NULL, CM_DOMAIN_RESOURCE, 8, &(cm_resource){0});
    CHECK(none_left());
}
