/* A client of the driver: runs the case that the command line names. */
#include "check.h"

MAIN_OF(memory_cases, code_cases, thread_cases)
