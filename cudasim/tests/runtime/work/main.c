/* Runs the case that the command line names. */
#include "work.h"

MAIN_OF(kernel_cases, stream_cases, event_cases, capture_cases, graph_cases, device_cases,
        array_cases, cupti_cases, thread_cases)
