/* Stands in for files of the driver level that are not here yet. */
#include "cupti.h"

__attribute__((weak)) void cm_cupti_callback_hook(void *userdata, int domain, uint32_t id,
                                                  const void *data)
{
}
__attribute__((weak)) int cm_cupti_driver_enable(const cm_cupti_link *link, bool launches)
{
    return 1;
}
__attribute__((weak)) void cm_cupti_driver_disable(const cm_cupti_link *link)
{
}
__attribute__((weak)) uint64_t cm_cupti_driver_count(void)
{
    return 0;
}
__attribute__((weak)) void cm_cupti_driver_expect_records(bool expected)
{
}
__attribute__((weak)) void cm_cuda_slots_record(bool on)
{
}
__attribute__((weak)) void cm_libraries_refresh(void)
{
}
