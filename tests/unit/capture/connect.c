/* Connects the rooms of a C program that records, as csrc/python/module.c does for the extension.
 */
#include "../../../csrc/capture/collector.h"
#include "../../../csrc/capture/session.h"
#include "../../../csrc/compact/overflow.h"
#include "../../../csrc/recover/orphan.h"

__attribute__((constructor)) static void connect_rooms(void)
{
    cm_collector_set_compactor(&cm_overflow);
    cm_session_set_sweeper(cm_orphan_sweep_all);
    cm_tail_set_source(&cm_orphan_tail);
}
