/* The words of a snapshot that mean something here. Their text ids are their numbers, so that a key
 * is compared as a number. The first 64 are keys, whose presence is a bit. */
#ifndef CM_SNAPSHOT_WORDS_H
#define CM_SNAPSHOT_WORDS_H

/* clang-format off */
#define CM_SNAP_KEYS(KEY) \
    KEY(ACTION, "action") \
    KEY(ADDR, "addr") \
    KEY(DEVICE_FREE, "device_free") \
    KEY(SIZE, "size") \
    KEY(STREAM, "stream") \
    KEY(TIME_US, "time_us") \
    KEY(FRAMES, "frames") \
    KEY(USER_METADATA, "user_metadata") \
    KEY(COMPILE_CONTEXT, "compile_context") \
    KEY(POOL_ID, "pool_id") \
    KEY(DEVICE, "device") \
    KEY(ADDRESS, "address") \
    KEY(TOTAL_SIZE, "total_size") \
    KEY(ALLOCATED_SIZE, "allocated_size") \
    KEY(ACTIVE_SIZE, "active_size") \
    KEY(REQUESTED_SIZE, "requested_size") \
    KEY(SEGMENT_TYPE, "segment_type") \
    KEY(SEGMENT_POOL_ID, "segment_pool_id") \
    KEY(IS_EXPANDABLE, "is_expandable") \
    KEY(BLOCKS, "blocks") \
    KEY(STATE, "state") \
    KEY(FILENAME, "filename") \
    KEY(LINE, "line") \
    KEY(NAME, "name") \
    KEY(STAGE, "stage") \
    KEY(SEGMENTS, "segments") \
    KEY(DEVICE_TRACES, "device_traces") \
    KEY(ALLOCATOR_SETTINGS, "allocator_settings") \
    KEY(EXTERNAL_ANNOTATIONS, "external_annotations") \
    KEY(HOST_SEGMENTS, "host_segments") \
    KEY(HOST_TRACES, "host_traces") \
    KEY(EXPORTER, "exporter") \
    KEY(CUPTIMEM, "cuptimem") \
    KEY(DEVICES, "devices") \
    KEY(MISSING, "missing") \
    KEY(UNREPORTED, "unreported") \
    KEY(ALONE, "alone") \
    KEY(BEFORE_START, "before_start") \
    KEY(MAX_SPLIT_SIZE, "max_split_size") \
    KEY(ROUNDUP, "roundup_power2_divisions") \
    KEY(CUDA_CONF, "PYTORCH_CUDA_ALLOC_CONF") \
    KEY(XPU_CONF, "PYTORCH_XPU_ALLOC_CONF") \
    KEY(CONF, "PYTORCH_ALLOC_CONF") \
    KEY(POWER_1, "1") \
    KEY(POWER_2, "2") \
    KEY(POWER_4, "4") \
    KEY(POWER_8, "8") \
    KEY(POWER_16, "16") \
    KEY(POWER_32, "32") \
    KEY(POWER_64, "64") \
    KEY(POWER_128, "128") \
    KEY(POWER_256, "256") \
    KEY(POWER_512, "512") \
    KEY(POWER_1024, "1024") \
    KEY(POWER_2048, "2048") \
    KEY(POWER_4096, "4096") \
    KEY(POWER_8192, "8192") \
    KEY(POWER_16384, "16384") \
    KEY(POWER_32768, "32768")
#define CM_SNAP_VALUES(VALUE) \
    VALUE(ALLOC, "alloc") \
    VALUE(FREE_REQUESTED, "free_requested") \
    VALUE(FREE_COMPLETED, "free_completed") \
    VALUE(FREE, "free") \
    VALUE(SEGMENT_ALLOC, "segment_alloc") \
    VALUE(SEGMENT_FREE, "segment_free") \
    VALUE(SEGMENT_MAP, "segment_map") \
    VALUE(SEGMENT_UNMAP, "segment_unmap") \
    VALUE(OOM, "oom") \
    VALUE(MOMENT, "snapshot") \
    VALUE(ANNOTATE, "annotate") \
    VALUE(ALIVE, "alive") /* an allocation from before, as cuptimem writes it */ \
    VALUE(ALLOCATED, "active_allocated") \
    VALUE(PENDING, "active_pending_free") \
    VALUE(AWAITING, "active_awaiting_free") \
    VALUE(INACTIVE, "inactive") \
    VALUE(LARGE, "large") \
    VALUE(SMALL, "small") \
    VALUE(START, "START") \
    VALUE(END, "END") \
    VALUE(NOT_COMPILED, "N/A")
/* clang-format on */

enum { CM_SNAP_KEY_MAX = 64 };

typedef enum cm_snap_word {
#define CM_SNAP_WORD(name, text) CM_SAYS_##name,
    CM_SNAP_KEYS(CM_SNAP_WORD) CM_SAYS_KEYS,
    CM_SAYS_VALUE_FIRST = CM_SNAP_KEY_MAX - 1,
    CM_SNAP_VALUES(CM_SNAP_WORD) CM_SAYS_END_OF_WORDS
#undef CM_SNAP_WORD
} cm_snap_word;

_Static_assert((int)CM_SAYS_KEYS <= (int)CM_SNAP_KEY_MAX, "keys are bits of 64");

#endif
