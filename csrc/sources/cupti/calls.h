/* What each call of CUDA does with memory, and how to read that from its parameters.
 *
 * Each parameter structure ends with the last field that is read; calls with equal beginnings share
 * one. Of work only the stream is read. A row of calls.c gives each callback's number and
 * structure, or where the stream is. A test compares all of it with the vendor's headers
 * (tests/record/driver/test_calls_vendor.py). Numbers are stable across releases. */
#ifndef CM_SOURCES_CUPTI_CALLS_H
#define CM_SOURCES_CUPTI_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CM_DOMAIN_DRIVER = 1, CM_DOMAIN_RUNTIME = 2, CM_DOMAIN_RESOURCE = 3 };
enum { CM_SITE_ENTER = 0, CM_SITE_EXIT = 1 };
enum { CM_RESOURCE_CONTEXT_CREATED = 1, CM_RESOURCE_CONTEXT_DESTROYED = 2 };

/* CUpti_CallbackData */
typedef struct cm_callback {
    int site;
    const char *function;
    const void *parameters;
    const int *result; /* valid at exit */
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation_data;
    uint32_t correlation;
} cm_callback;

/* CUpti_ResourceData */
typedef struct cm_resource {
    void *context;
} cm_resource;

/* --- memory --------------------------------------------------------------------------------- */

typedef struct cm_call_take {
    uint64_t *address;
    size_t size;
} cm_call_take;

typedef struct cm_call_take_v1 {
    uint32_t *address;
    unsigned size;
} cm_call_take_v1;

typedef struct cm_call_take_host_v1 {
    uint64_t *address;
    unsigned size;
} cm_call_take_host_v1;

typedef struct cm_call_take_pitch {
    uint64_t *address;
    size_t *pitch;
    size_t width;
    size_t height;
} cm_call_take_pitch;

typedef struct cm_call_take_pitch_v1 {
    uint32_t *address;
    unsigned *pitch;
    unsigned width;
    unsigned height;
} cm_call_take_pitch_v1;

typedef struct cm_call_take_async {
    uint64_t *address;
    size_t size;
    void *stream;
} cm_call_take_async;

typedef struct cm_call_take_from_pool {
    uint64_t *address;
    size_t size;
    void *pool;
    void *stream;
} cm_call_take_from_pool;

typedef struct cm_call_give {
    uint64_t address;
} cm_call_give;

typedef struct cm_call_give_v1 {
    uint32_t address;
} cm_call_give_v1;

typedef struct cm_call_give_async {
    uint64_t address;
    void *stream;
} cm_call_give_async;

/* A range to be registered, unmapped or freed. */
typedef struct cm_call_range {
    uint64_t address;
    size_t size;
} cm_call_range;

typedef struct cm_call_create {
    uint64_t *handle;
    size_t size;
    const struct cm_memory_properties *properties;
} cm_call_create;

typedef struct cm_call_map {
    uint64_t address;
    size_t size;
    size_t offset;
    uint64_t handle;
} cm_call_map;

typedef struct cm_call_retain {
    uint64_t *handle;
    void *address;
} cm_call_retain;

/* Calls of which only the address or handle, at the beginning, is used. */
typedef struct cm_call_open {
    uint64_t *address;
} cm_call_open;

typedef struct cm_call_described {
    uint64_t *handle;
    const void *description;
} cm_call_described;

typedef struct cm_call_mipmap {
    uint64_t *handle;
    const void *description;
    unsigned levels;
} cm_call_mipmap;

/* Allocates from something that has a handle: imported memory, an imported pool. */
typedef struct cm_call_part {
    uint64_t *address;
    uint64_t handle;
} cm_call_part;

typedef struct cm_call_mapped_buffer {
    uint64_t *address;
    uint64_t handle;
    const struct cm_buffer_description *description;
} cm_call_mapped_buffer;

typedef struct cm_call_add_node {
    void **node;
    void *graph;
    const void *dependencies;
    size_t count;
    const void *parameters;
} cm_call_add_node;

typedef struct cm_call_add_node_v2 {
    void **node;
    void *graph;
    const void *dependencies;
    const void *edges;
    size_t count;
    const void *parameters;
} cm_call_add_node_v2;

typedef struct cm_call_add_free_node {
    void **node;
    void *graph;
    const void *dependencies;
    size_t count;
    uint64_t address;
} cm_call_add_free_node;

typedef struct cm_call_make_context {
    uint64_t *context;
    unsigned flags;
    int device;
} cm_call_make_context;

typedef struct cm_call_make_context_v3 {
    uint64_t *context;
    const void *affinities;
    int count;
    unsigned flags;
    int device;
} cm_call_make_context_v3;

typedef struct cm_call_make_context_v4 {
    uint64_t *context;
    const void *parameters;
    unsigned flags;
    int device;
} cm_call_make_context_v4;

typedef struct cm_call_retain_context {
    uint64_t *context;
    int device;
} cm_call_retain_context;

typedef struct cm_call_reset {
    int device;
} cm_call_reset;

/* Parameters that are not read. */
typedef struct cm_call_none {
    char unused;
} cm_call_none;

/* --- the runtime's, where they differ --------------------------------------------------------- */

typedef struct cm_cuda_extent {
    size_t width, height, depth;
} cm_cuda_extent;

typedef struct cm_call_runtime_array {
    uint64_t *handle;
    const struct cm_channel_format *format;
    size_t width;
    size_t height;
} cm_call_runtime_array;

typedef struct cm_call_runtime_array_3d {
    uint64_t *handle;
    const struct cm_channel_format *format;
    cm_cuda_extent extent;
    unsigned flags;
} cm_call_runtime_array_3d;

typedef struct cm_call_runtime_mipmap {
    uint64_t *handle;
    const struct cm_channel_format *format;
    cm_cuda_extent extent;
    unsigned levels;
    unsigned flags;
} cm_call_runtime_mipmap;

typedef struct cm_call_runtime_3d {
    struct cm_pitched_pointer *memory;
    cm_cuda_extent extent;
} cm_call_runtime_3d;

/* --- what parameters point at ----------------------------------------------------------------- */

enum { CM_LOCATION_DEVICE = 1 };

typedef struct cm_location {
    int type;
    int id;
} cm_location;

/* CUmemAllocationProp and CUmemPoolProps begin alike. */
typedef struct cm_memory_properties {
    int type;
    int handle_types;
    cm_location location;
} cm_memory_properties;

/* CUDA_MEM_ALLOC_NODE_PARAMS, of the runtime, too. */
typedef struct cm_alloc_node {
    cm_memory_properties pool;
    char rest_of_pool[72];
    const void *access;
    size_t access_count;
    size_t size;
    uint64_t address;
} cm_alloc_node;

/* CUgraphNodeParams */
enum { CM_NODE_ALLOC = 10, CM_NODE_FREE = 11 };
typedef struct cm_graph_node {
    int type;
    int reserved[3];
    union {
        cm_alloc_node alloc;
        uint64_t free;
    };
} cm_graph_node;

/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
typedef struct cm_external_description {
    int type;
    void *handle[2];
    unsigned long long size;
} cm_external_description;

/* CUDA_EXTERNAL_MEMORY_BUFFER_DESC */
typedef struct cm_buffer_description {
    unsigned long long offset;
    unsigned long long size;
} cm_buffer_description;

/* CUmulticastObjectProp */
typedef struct cm_multicast_properties {
    unsigned devices;
    size_t size;
} cm_multicast_properties;

/* CUDA_ARRAY_DESCRIPTOR */
typedef struct cm_array_description {
    size_t width;
    size_t height;
    int format;
    unsigned channels;
} cm_array_description;

/* CUDA_ARRAY3D_DESCRIPTOR */
enum {
    CM_ARRAY_LAYERED = 1,
    CM_ARRAY_CUBEMAP = 4,
    CM_ARRAY_SPARSE = 0x40,
    CM_ARRAY_DEFERRED = 0x80
};
typedef struct cm_array_3d_description {
    size_t width;
    size_t height;
    size_t depth;
    int format;
    unsigned channels;
    unsigned flags;
} cm_array_3d_description;

/* cudaChannelFormatDesc */
typedef struct cm_channel_format {
    int bits[4];
    int kind;
} cm_channel_format;

/* cudaPitchedPtr */
typedef struct cm_pitched_pointer {
    uint64_t address;
    size_t pitch;
} cm_pitched_pointer;

/* CUlaunchConfig */
typedef struct cm_launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared;
    void *stream;
} cm_launch_config;

/* --- work ------------------------------------------------------------------------------------- */

typedef struct cm_call_launch_ex {
    const cm_launch_config *config;
} cm_call_launch_ex;

/* --- one row for each callback (calls.c) -------------------------------------------------------
 */

typedef enum cm_call_does {
    CM_CALL_GIVES = 1, /* allocates memory or makes a handle */
    CM_CALL_TAKES,     /* frees it */
    CM_CALL_BUILDS,    /* adds a node to a graph, which does one of the two */
    CM_CALL_MOVES,     /* moves memory between driver and system; the amounts are unknown */
    CM_CALL_WORKS      /* puts work on a stream */
} cm_call_does;

typedef enum cm_call_sized {
    CM_SIZED_NOT = 0, /* the call has no size */
    CM_SIZED_64,
    CM_SIZED_32,
    CM_SIZED_PITCH, /* `size` is a pointer to the pitch; the height follows the width */
    CM_SIZED_PITCH_V1,
    CM_SIZED_ARRAY, /* from here on `size` is a pointer to a description */
    CM_SIZED_ARRAY_3D,
    CM_SIZED_MIPMAP,
    CM_SIZED_EXTERNAL,
    CM_SIZED_BUFFER,
    CM_SIZED_MULTICAST,
    CM_SIZED_NODE,
    CM_SIZED_RUNTIME_ARRAY,
    CM_SIZED_RUNTIME_ARRAY_3D,
    CM_SIZED_RUNTIME_MIPMAP,
    CM_SIZED_RUNTIME_3D
} cm_call_sized;

typedef enum cm_call_place {
    CM_PLACE_CONTEXT = 0, /* the device of the current context */
    CM_PLACE_HOST,
    CM_PLACE_PROPERTIES, /* `where` is a pointer to cm_memory_properties */
    CM_PLACE_DEVICE,     /* `where` is the device's number */
    CM_PLACE_NODE        /* in the node's parameters */
} cm_call_place;

enum { CM_CALL_ABSENT = 0xff }; /* for an offset: there is none */

typedef struct cm_call {
    const char *name; /* as in the vendor's list */
    uint16_t id;
    uint8_t domain, does;
    uint8_t kind;    /* cm_driver_kind, cm_work_kind */
    uint8_t address; /* offset. GIVES: of a pointer to it. TAKES: of the address itself */
    uint8_t size, sized;
    uint8_t where, place;
    uint8_t stream, handle;
    bool by_value;   /* GIVES: `address` is the address itself, too */
    bool narrow;     /* addresses have 32 bits */
    bool generic;    /* the node's parameters are a cm_graph_node */
    bool recorded;   /* activity records cover it */
    bool primary;    /* returns the device's primary context */
    bool configured; /* the stream is in cm_launch_config */
    bool per_thread; /* stream 0 is the thread's own default stream */
} cm_call;

enum { CM_CALL_IDS = 1024 }; /* more than any release has */
extern const cm_call cm_calls[];
extern const size_t cm_call_count;

/* Reading a call's parameters (calls_read.c), on the caller's thread, in a hook. Output parameters
 * are valid only after the call has succeeded. */
cm_call_does cm_call_does_now(const cm_call *c, const void *parameters); /* 0: nothing */
uint64_t cm_call_given(const cm_call *c, const void *parameters);
uint64_t cm_call_taken(const cm_call *c, const void *parameters);  /* c->address is not ABSENT */
int64_t cm_call_bytes(const cm_call *c, const void *parameters);   /* 0: unknown */
uint64_t cm_call_stream(const cm_call *c, const void *parameters); /* 0: the default one */
uint64_t cm_call_handle(const cm_call *c, const void *parameters); /* c->handle is not ABSENT */
int cm_call_device(const cm_call *c, const void *parameters);      /* -1: the host, or unknown */

/* Bits of one element of an array, all channels together; 0: unknown format. *block: elements are
 * compressed in blocks of four by four. */
unsigned cm_array_bits(int format, unsigned channels, bool *block);
unsigned cm_channel_bits(const cm_channel_format *format, bool *block);
/* Bytes of an array of these extents (0: an unused dimension). Each of the levels has half the
 * width, height and, unless there are layers, depth of the one before. */
int64_t cm_array_bytes(size_t width, size_t height, size_t depth, bool layers, unsigned levels,
                       unsigned bits, bool block);

#endif
