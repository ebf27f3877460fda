#include "sources.h"

#include <stdio.h>

#include "../capture/session.h"
#include "cuda.h"
#include "cuda_slots.h"
#include "dispose.h"
#include "emit.h"
#include "libraries.h"
#include "simulated_reads.h"
#include "tables.h"

static bool register_symbols(void)
{
    return cm_slots_register(cm_allocator_symbols, cm_allocator_symbol_count) &&
           cm_slots_register(cm_autograd_symbols, cm_autograd_symbol_count) &&
           cm_slots_register(cm_cuda_symbols, cm_cuda_symbol_count) &&
           cm_slots_register(cm_host_allocator_symbols, cm_host_allocator_symbol_count) &&
           cm_slots_register(cm_workspace_symbols, cm_workspace_symbol_count) &&
           cm_slots_register(cm_autocast_symbols, cm_autocast_symbol_count) &&
           cm_slots_register(cm_cuda_slot_symbols, cm_cuda_slot_symbol_count) &&
           cm_slots_register(cm_cupti_symbols, cm_cupti_symbol_count);
}

/* Marks slots that were patched during recording: calls before that were missed. */
static void mark_late(int patched)
{
    cm_producer *t = patched > 0 ? cm_enter_hook() : NULL;

    if (t == NULL)
        return;
    cm_event *e = cm_reserve_hook(t);
    if (e != NULL) {
        *e = (cm_event){
            .time = cm_clock_now(),
            .address = (uint64_t)patched,
            .size = CM_MARK_LATE_HOOKS,
            .kind = CM_EV_MARK,
            .device_index = -1,
        };
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
}

static int patched_some(int patched)
{
    if (patched > 0 && atomic_load(&cm_autograd_thread_id) == NULL) {
        void *found = cm_slots_find("_ZN2at14RecordFunction15currentThreadIdEv");
        atomic_store(&cm_autograd_thread_id, (cm_autograd_thread_id_fn)found);
        found = cm_slots_find("_ZN3c108GradMode10is_enabledEv");
        atomic_store(&cm_autograd_grad_mode, (cm_autograd_records_fn)found);
    }
    if (patched > 0 && cm_autograd_has_deleter())
        cm_dispose_install();
    if (patched > 0)
        patched += cm_cuda_install();
    mark_late(patched);
    return patched;
}

void cm_sources_read_environment(void)
{
    cm_cuda_read_environment();
}

bool cm_sources_may_record(void)
{
    if (!cm_session_waits())
        return true;
    if (cm_session_share() < 0)
        return false;
    cm_simulated_install();
    return true;
}

/* The scan that finds the first slots leaves them unpatched. The ring must be made before they are
 * patched, and not under the slots' mutex; then a second scan patches them. */
static int scan(int (*slots)(void))
{
    int patched = slots();

    if (cm_slots_are_wanted() && cm_sources_may_record())
        patched += slots();
    return patched;
}

int cm_sources_install(void)
{
    if (!cm_session_waits())
        cm_simulated_install();
    cm_slots_set_gate(cm_session_waits);
    cm_cuda_begin_counts();
    return register_symbols() ? patched_some(scan(cm_slots_install)) : 0;
}

void cm_sources_remove(void)
{
    cm_simulated_remove();
    cm_cuda_remove();
    cm_host_allocator_remove();
    cm_dispose_remove();
    cm_slots_remove();
}

void cm_sources_rescan(void)
{
    patched_some(scan(cm_slots_rescan));
    cm_dispose_rescan();
    mark_late(cm_cuda_rescan());
    if (cm_cuda_slots_are_on())
        cm_libraries_refresh(); /* return addresses must be found in a current list */
}

const char *cm_autograd_unseen_type(void)
{
    return cm_dispose_unseen();
}

cm_sources_cuda cm_sources_get_cuda(void)
{
    cm_cuda_state now = cm_cuda_get_state();

    return (cm_sources_cuda){now.type, now.redirected, now.unseen, now.untraced};
}

/* --- rows ---------------------------------------------------------------------------------- */

typedef struct rows {
    cm_slot_row *row;
    size_t capacity, count;
} rows;

static void add_row(void *context, const cm_slot_symbol *symbol, const char *library, int patched)
{
    rows *all = context;

    if (all->count < all->capacity) {
        cm_slot_row *row = &all->row[all->count];
        *row = (cm_slot_row){
            .source = symbol->source,
            .symbol = symbol->names[0],
            .meaning = symbol->meaning,
            .patched = patched,
        };
        snprintf(row->library, sizeof row->library, "%s", library != NULL ? library : "");
    }
    all->count++;
}

static void add_vtable(void *context, const char *type, const char *library, int redirected)
{
    const cm_slot_symbol vtable = {
        .source = "autograd",
        .meaning = "autograd node destroyed with its pointer (before torch 2.13)",
        .names = {type},
    };

    add_row(context, &vtable, library, redirected);
}

static void add_allocator(void *context, const char *type, const char *library, int redirected)
{
    const cm_slot_symbol vtable = {
        .source = "cuda", .meaning = "sizes as asked for", .names = {type}};

    add_row(context, &vtable, library, redirected);
}

size_t cm_sources_rows(cm_slot_row *row, size_t capacity)
{
    rows all = {row, capacity, 0};

    if (register_symbols()) /* a process without torch must list them as missing */
        cm_slots_each(add_row, &all);
    cm_dispose_each(add_vtable, &all);
    cm_cuda_each(add_allocator, &all);
    return all.count;
}
