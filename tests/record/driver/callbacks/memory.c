/* What gives memory and takes it back, each call for itself. */
#include "cases.h"
#include "events.h"

void memory(void)
{
    uint64_t out = 0x7000;
    cm_call_take take = {&out, 4096};
    cm_call_give give = {0x7000};

    whole(D, 243, &take, 0);
    NEW(DEVICE, 0x7000, 4096);
    CHECK(last()->device_type == CM_DEVICE_CUDA && last()->device_index == 3);
    CORRELATED;
    whole(D, 371, &take, 0);
    NEW(MANAGED, 0x7000, 4096);
    CORRELATED;
    CHECK(asked == 1); /* a context is asked for its device once */

    /* The free is there before the call is. */
    uint32_t call = ++correlation;
    tell(D, 245, CM_SITE_ENTER, &give, 0, call);
    FREE(0, 0x7000, 0);
    CORRELATED;
    CHECK(none_left());
    tell(D, 245, CM_SITE_EXIT, &give, 0, call);
    CHECK(none_left());

    whole(D, 245, &(cm_call_give){0}, 0); /* of nothing */
    whole(D, 243, &take, 2);              /* refused */
    CHECK(none_left());
    whole(D, 245, &give, 1);
    FREE(0, 0x7000, 0);
    CORRELATED;
    expect_more(CM_DRIVER_MORE_FAILED, 1);
    CHECK(none_left());

    uint64_t count = cm_cupti_driver_count();
    whole(D, 243, &take, 0);
    CHECK(cm_cupti_driver_count() == count + 1);
}

void places(void)
{
    uint64_t out = 0x9000;
    cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 5}},
                         host = {.location = {3, 1}};
    cm_call_take take = {&out, 64};
    cm_call_create create = {&out, 64, &device};

    cm_cupti_driver_expect_records(true);
    whole(D, id_of("cuMemHostAlloc"), &take, 0);
    CHECK(next()->device_type == CM_DEVICE_CPU);
    CORRELATED;
    whole(D, id_of("cuMemHostRegister_v2"), &(cm_call_range){0x5000, 77}, 0);
    NEW(REGISTERED, 0x5000, 77);
    CHECK(last()->device_type == CM_DEVICE_CPU);
    start_over();
    whole(D, id_of("cuMemCreate"), &create, 0);
    CHECK(next()->device_index == 5);
    start_over();
    create.properties = &host;
    whole(D, id_of("cuMemCreate"), &create, 0);
    CHECK(next()->device_type == CM_DEVICE_CPU);
    start_over();
    current = NULL; /* before there is any */
    whole(D, 243, &take, 0);
    CHECK(next()->device_index == CM_DEVICE_UNKNOWN);
    start_over();
    current = (void *)0x1001;
    context_uid = 7 + 64; /* shares its place with the one before */
    whole(D, 243, &take, 0);
    CHECK(next()->device_index == 1);
}

void streams(void)
{
    uint64_t out = 0xa000;
    cm_call_take_async take = {&out, 100, NULL};
    cm_call_take_from_pool pooled = {&out, 100, (void *)0x50, (void *)0x60};
    cm_call_give_async give = {0xa000, (void *)0x70};

    cm_cupti_driver_expect_records(true);
    whole(D, id_of("cuMemAllocAsync"), &take, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED; /* the default stream is not told */
    whole(D, id_of("cuMemAllocAsync_ptsz"), &take, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED;
    expect_more(CM_DRIVER_MORE_STREAM, 2); /* the thread's own default stream */
    whole(D, id_of("cuMemAllocFromPoolAsync"), &pooled, 0);
    NEW(ASYNC, 0xa000, 100);
    CORRELATED;
    expect_more(CM_DRIVER_MORE_STREAM, 0x60);
    expect_more(CM_DRIVER_MORE_HANDLE, 0x50);
    whole(D, id_of("cuMemFreeAsync"), &give, 0);
    FREE(0, 0xa000, 0);
    CORRELATED;
    expect_more(CM_DRIVER_MORE_STREAM, 0x70);
    uint64_t moves = cm_inflight_state();
    whole(D, id_of("cuMemPoolTrimTo"), &give, 0);
    CHECK(none_left() && moves != cm_inflight_state());
}

void virtual_memory(void)
{
    uint64_t out = 0x11;
    cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    cm_multicast_properties shared = {2, 1 << 21};
    const uint64_t at = 0x100000;

    gives("cuMemAddressReserve", &(cm_call_take){&(uint64_t){at}, 1 << 22}, CM_DRIVER_RESERVED, at,
          1 << 22);
    gives("cuMemCreate", &(cm_call_create){&out, 1 << 21, &device}, CM_DRIVER_PHYSICAL, 0x11,
          1 << 21);
    gives("cuMemMap", &(cm_call_map){at, 1 << 21, 0, 0x11}, CM_DRIVER_MAPPED, at, 1 << 21);
    expect_more(CM_DRIVER_MORE_HANDLE, 0x11);
    gives("cuMemRetainAllocationHandle", &(cm_call_retain){&out, (void *)at}, CM_DRIVER_REFERENCE,
          0x11, 0);
    expect_more(CM_DRIVER_MORE_HANDLE, at);
    whole(D, id_of("cuMemRelease"), &(cm_call_give){0x11}, 0);
    FREE(CM_DRIVER_PHYSICAL, 0x11, 0);
    whole(D, id_of("cuMemUnmap"), &(cm_call_range){at, 1 << 21}, 0);
    FREE(CM_DRIVER_MAPPED, at, 1 << 21);
    whole(D, id_of("cuMemAddressFree"), &(cm_call_range){at, 1 << 22}, 0);
    FREE(CM_DRIVER_RESERVED, at, 1 << 22);
    gives("cuMemImportFromShareableHandle", &(cm_call_open){&out}, CM_DRIVER_IMPORTED, 0x11, 0);
    gives("cuMulticastCreate", &(cm_call_described){&out, &shared}, CM_DRIVER_MULTICAST, 0x11,
          1 << 21);
    CHECK(none_left());
}

void descriptions(void)
{
    uint64_t out = 0x21;
    size_t pitch = 512;
    cm_array_description plain = {100, 10, 0x20, 4}; /* floats */
    cm_array_3d_description cube = {64, 64, 6, 0x01, 1, CM_ARRAY_CUBEMAP};
    cm_array_3d_description solid = {64, 32, 16, 0x10, 2, 0}, none = solid,
                            odd = {5, 5, 0, 0x91, 4, 0};
    cm_external_description external = {.size = 999};
    cm_buffer_description buffer = {.offset = 8, .size = 333};
    cm_alloc_node node = {.pool.location = {CM_LOCATION_DEVICE, 2}, .size = 44, .address = 0x31};
    cm_graph_node any = {.type = CM_NODE_ALLOC, .alloc = node}, freed = {.type = CM_NODE_FREE};
    cm_graph_node kernel = {.type = 0};

    whole(D, id_of("cuMemAllocPitch_v2"), &(cm_call_take_pitch){&out, &pitch, 500, 7}, 0);
    NEW(DEVICE, 0x21, 512 * 7);
    CORRELATED;
    gives("cuArrayCreate_v2", &(cm_call_described){&out, &plain}, CM_DRIVER_ARRAY, 0x21, 16000);
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &cube}, CM_DRIVER_ARRAY, 0x21,
          64 * 64 * 6);
    gives("cuMipmappedArrayCreate", &(cm_call_mipmap){&out, &solid, 3}, CM_DRIVER_ARRAY, 0x21,
          (64 * 32 * 16 + 32 * 16 * 8 + 16 * 8 * 4) * 4);
    gives("cuMipmappedArrayCreate", &(cm_call_mipmap){&out, &cube, 2}, CM_DRIVER_ARRAY, 0x21,
          64 * 64 * 6 + 32 * 32 * 6);
    none.flags = CM_ARRAY_SPARSE; /* mapped later */
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &none}, CM_DRIVER_ARRAY, 0x21, 0);
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &odd}, CM_DRIVER_ARRAY, 0x21, 8 * 8 / 2);
    odd.width = SIZE_MAX; /* no such array can be: rather nothing than anything */
    gives("cuArray3DCreate_v2", &(cm_call_described){&out, &odd}, CM_DRIVER_ARRAY, 0x21, 0);
    whole(D, id_of("cuArrayDestroy"), &(cm_call_give){0x21}, 0);
    FREE(CM_DRIVER_ARRAY, 0x21, 0);
    gives("cuImportExternalMemory", &(cm_call_described){&out, &external}, CM_DRIVER_EXTERNAL, 0x21,
          999);
    gives("cuExternalMemoryGetMappedBuffer",
          &(cm_call_mapped_buffer){&(uint64_t){0x4000}, 0x21, &buffer}, CM_DRIVER_IPC, 0x4000, 333);
    expect_more(CM_DRIVER_MORE_HANDLE, 0x21);
    gives("cuGraphAddMemAllocNode", &(cm_call_add_node){.parameters = &node}, CM_DRIVER_GRAPH, 0x31,
          44);
    CHECK(last()->device_index == 2);
    gives("cuGraphAddNode", &(cm_call_add_node){.parameters = &any}, CM_DRIVER_GRAPH, 0x31, 44);
    freed.free = 0x31;
    whole(D, id_of("cuGraphAddNode_v2"), &(cm_call_add_node_v2){.parameters = &freed}, 0);
    FREE(CM_DRIVER_GRAPH, 0x31, 0);
    whole(D, id_of("cuGraphAddNode"), &(cm_call_add_node){.parameters = &kernel}, 0);
    whole(D, id_of("cuGraphAddNode"), &(cm_call_add_node){0}, 0);
    CHECK(none_left());
    whole(D, id_of("cuGraphAddMemFreeNode"), &(cm_call_add_free_node){.address = 0x31}, 0);
    FREE(CM_DRIVER_GRAPH, 0x31, 0);
    uint32_t narrow = 0x77, narrow_pitch = 16;
    whole(D, id_of("cuMemAlloc"), &(cm_call_take_v1){&narrow, 55}, 0);
    NEW(DEVICE, 0x77, 55);
    CORRELATED;
    whole(D, id_of("cuMemAllocPitch"), &(cm_call_take_pitch_v1){&narrow, &narrow_pitch, 9, 3}, 0);
    NEW(DEVICE, 0x77, 48);
    CORRELATED;
    whole(D, id_of("cuMemFree"), &(cm_call_give_v1){0x77}, 0);
    FREE(0, 0x77, 0);
    CORRELATED;
    CHECK(none_left());
}
