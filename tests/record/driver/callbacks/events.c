#include "events.h"

#include <string.h>

static size_t next_event;
bool see_contexts, see_libraries;

void show(void)
{
    for (size_t i = 0; i < double_count(); i++) {
        const cm_event *e = &double_events()[i];
        fprintf(stderr, "kind %d flags %#x address %#llx size %lld stack %u device %d:%d\n",
                e->kind, e->flags, (unsigned long long)e->address, (long long)e->size, e->stack,
                e->device_type, e->device_index);
    }
}

void start_over(void)
{
    double_clear();
    next_event = 0;
}

static bool is_library(const cm_event *e)
{
    return e->kind == CM_EV_DRIVER_MORE && e->size == CM_DRIVER_MORE_LIBRARY;
}

/* Contexts that were there before have numbers like this. */
static bool was_there(const cm_event *e)
{
    return e->kind == CM_EV_DRIVER_NEW && (e->flags & CM_DRIVER_KIND) == CM_DRIVER_CONTEXT &&
           e->address >> 12 == 1;
}

static void pass_over(void)
{
    while (next_event < double_count() &&
           ((!see_libraries && is_library(&double_events()[next_event])) ||
            (!see_contexts && was_there(&double_events()[next_event]))))
        next_event++;
}

const cm_event *next(void)
{
    pass_over();
    CHECK(next_event < double_count());
    return &double_events()[next_event++];
}

const cm_event *last(void)
{
    return &double_events()[next_event - 1];
}

bool none_left(void)
{
    pass_over();
    return next_event == double_count();
}

void expect(int kind, int flags, uint64_t address, int64_t size)
{
    const cm_event *e = next();

    if (e->kind == kind && e->flags == flags && e->address == address && e->size == size &&
        e->stack == (kind == CM_EV_DRIVER_NEW ? CM_STACK_FIRST : 0))
        return;
    fprintf(stderr, "event %zu: wanted kind %d flags %#x address %#llx size %lld\n", next_event - 1,
            kind, flags, (unsigned long long)address, (long long)size);
    show();
    exit(1);
}

void expect_more(cm_driver_more what, uint64_t value)
{
    const cm_event *e = next();

    CHECK(e->kind == CM_EV_DRIVER_MORE && e->size == what && e->address == value);
}

void expect_library(const char *name)
{
    const cm_event *e = next();

    CHECK(is_library(e));
    if (strcmp(double_name(e->stack), name) != 0)
        fprintf(stderr, "found %s, not %s\n", double_name(e->stack), name);
    CHECK(strcmp(double_name(e->stack), name) == 0);
}

void expect_lost(void)
{
    const cm_event *e = next();

    CHECK(e->kind == CM_EV_LOST && e->size == 1);
}

void gives(const char *name, const void *parameters, int kind, uint64_t address, int64_t size)
{
    whole(D, id_of(name), parameters, 0);
    expect(CM_EV_DRIVER_NEW, kind, address, size);
}
