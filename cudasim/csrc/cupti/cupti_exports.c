/* Which functions the release that is imitated has.
 *
 * All of them are here, for all releases. A program that is linked against CUPTI, as PyTorch is, is
 * bound to them whatever is imitated: with a release that lacks one it could not have started. A
 * lookup in libcupti.so.13 depends on this table: that file's symbols are resolved by calling
 * cm_sim_cupti_function (setup.py: ASK). What the wheels of the releases export, from 11.8 on;
 * without an entry: always. */
#define _GNU_SOURCE
#include "cupti.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
    const char *name;
    uint16_t since, until; /* generations; until 0: still there */
} exports[] = {
    {"InitializeInjectionNvtxExtension", 1300, 0},
    {"cuptiActivityDisable_v2", 1302, 0},
    {"cuptiActivityEnableAllSyncRecords", 1208, 0},
    {"cuptiActivityEnableAllocationSource", 1206, 0},
    {"cuptiActivityEnableAndDump_v2", 1302, 0},
    {"cuptiActivityEnableCudaEventDeviceTimestamps", 1300, 0},
    {"cuptiActivityEnableDeviceGraph", 1203, 0},
    {"cuptiActivityEnableDriverApi", 1205, 0},
    {"cuptiActivityEnableDriverApi_v2", 1303, 0},
    {"cuptiActivityEnableHWTrace", 1208, 0},
    {"cuptiActivityEnableRawTimestamps_v2", 1302, 0},
    {"cuptiActivityEnableRuntimeApi", 1205, 0},
    {"cuptiActivityEnableRuntimeApi_v2", 1303, 0},
    {"cuptiActivityEnable_v2", 1302, 0},
    {"cuptiActivityGetAttribute_v2", 1302, 0},
    {"cuptiActivityGetEnabledKinds", 1302, 0},
    {"cuptiActivityGetNextRecord_v2", 1303, 0},
    {"cuptiActivityGetNumDroppedRecords_v2", 1303, 0},
    {"cuptiActivityGetNvtxExtPayloadAttr", 1300, 0},
    {"cuptiActivityGetNvtxExtPayloadEntryTypeInfo", 1300, 0},
    {"cuptiActivityGetStructSize", 1302, 0},
    {"cuptiActivityPopExternalCorrelationId_v2", 1303, 0},
    {"cuptiActivityPushExternalCorrelationId_v2", 1303, 0},
    {"cuptiActivityRegisterCallbacks_v2", 1302, 0},
    {"cuptiActivitySetAttribute_v2", 1302, 0},
    {"cuptiClockControlGetStatus", 1304, 0},
    {"cuptiClockControlLock", 1304, 0},
    {"cuptiClockControlUnlock", 1304, 0},
    {"cuptiEnableCigMode", 1205, 0},
    {"cuptiGetCudaEventId", 1304, 0},
    {"cuptiGetEnabledCallbacks", 1302, 0},
    {"cuptiGetErrorMessage", 1202, 0},
    {"cuptiGetGlobalCallbackState", 1201, 0},
    {"cuptiGetGraphExecId", 1203, 0},
    {"cuptiGetTimestamp_v2", 1303, 0},
    {"cuptiIsTracingSessionRunning", 1303, 0},
    {"cuptiNvtxExtensionInitialize", 1300, 0},
    {"cuptiPmSamplingCounterDataGetSampleInfo", 1206, 0},
    {"cuptiPmSamplingCounterDataImageInitialize", 1206, 0},
    {"cuptiPmSamplingDecodeData", 1206, 0},
    {"cuptiPmSamplingDisable", 1206, 0},
    {"cuptiPmSamplingEnable", 1206, 0},
    {"cuptiPmSamplingGetCounterAvailability", 1206, 0},
    {"cuptiPmSamplingGetCounterDataInfo", 1206, 0},
    {"cuptiPmSamplingGetCounterDataSize", 1206, 0},
    {"cuptiPmSamplingSetConfig", 1206, 0},
    {"cuptiPmSamplingStart", 1206, 0},
    {"cuptiPmSamplingStop", 1206, 0},
    {"cuptiProfilerHostConfigAddMetrics", 1206, 0},
    {"cuptiProfilerHostDeinitialize", 1206, 0},
    {"cuptiProfilerHostEvaluateToGpuValues", 1206, 0},
    {"cuptiProfilerHostGetBaseMetrics", 1206, 0},
    {"cuptiProfilerHostGetConfigImage", 1206, 0},
    {"cuptiProfilerHostGetConfigImageSize", 1206, 0},
    {"cuptiProfilerHostGetMaxNumHardwareMetricsPerPass", 1206, 0},
    {"cuptiProfilerHostGetMetricProperties", 1206, 0},
    {"cuptiProfilerHostGetMetricsInSinglePassSet", 1302, 0},
    {"cuptiProfilerHostGetNumOfPasses", 1206, 0},
    {"cuptiProfilerHostGetRangeName", 1206, 0},
    {"cuptiProfilerHostGetSinglePassSets", 1302, 0},
    {"cuptiProfilerHostGetSubMetrics", 1206, 0},
    {"cuptiProfilerHostGetSupportedChips", 1206, 0},
    {"cuptiProfilerHostInitialize", 1206, 0},
    {"cuptiProfilerHostSetDevicePartitionInfo", 1303, 0},
    {"cuptiProfilerIsPassCollected", 1206, 0},
    {"cuptiRangeProfilerCounterDataGetRangeInfo", 1206, 0},
    {"cuptiRangeProfilerCounterDataImageInitialize", 1206, 0},
    {"cuptiRangeProfilerDecodeData", 1206, 0},
    {"cuptiRangeProfilerDisable", 1206, 0},
    {"cuptiRangeProfilerEnable", 1206, 0},
    {"cuptiRangeProfilerGetCounterDataInfo", 1206, 0},
    {"cuptiRangeProfilerGetCounterDataSize", 1206, 0},
    {"cuptiRangeProfilerGetDevicePartitionInfo", 1303, 0},
    {"cuptiRangeProfilerPopRange", 1206, 0},
    {"cuptiRangeProfilerPushRange", 1206, 0},
    {"cuptiRangeProfilerSetConfig", 1206, 0},
    {"cuptiRangeProfilerStart", 1206, 0},
    {"cuptiRangeProfilerStop", 1206, 0},
    {"cuptiSassMetricsDisable", 1202, 0},
    {"cuptiSassMetricsEnable", 1202, 0},
    {"cuptiSassMetricsFlushData", 1202, 0},
    {"cuptiSassMetricsGetDataProperties", 1202, 0},
    {"cuptiSassMetricsGetMetrics", 1202, 0},
    {"cuptiSassMetricsGetNumOfMetrics", 1202, 0},
    {"cuptiSassMetricsGetProperties", 1202, 0},
    {"cuptiSassMetricsSetConfig", 1202, 0},
    {"cuptiSassMetricsUnsetConfig", 1202, 0},
    {"cuptiSubscribe_v2", 1300, 0},
};

static bool has(const char *name)
{
    unsigned now = cm_sim_cupti_generation()->number;

    for (size_t i = 0; i < sizeof exports / sizeof exports[0]; i++)
        if (!strcmp(exports[i].name, name))
            return exports[i].since <= now && (!exports[i].until || now < exports[i].until);
    return true;
}

void *cm_sim_cupti_function(const char *name)
{
    Dl_info here;
    void *found = NULL;

    if (!has(name) || !dladdr((void *)cm_sim_cupti_function, &here) || !here.dli_fname)
        return NULL;
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (self) {
        found = dlsym(self, name);
        dlclose(self);
    }
    return found;
}
