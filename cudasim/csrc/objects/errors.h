/* All errors of CUDA 13: X(number, the runtime's name, the driver's name, text). NULL where one of
 * the two does not know the number. Programs compare names and search texts ("out of memory"), so
 * both are those that CUDA gives; test_runtime_vendor.py compares them. */
#ifndef CM_SIM_ERRORS_H
#define CM_SIM_ERRORS_H

// clang-format off
#define CM_SIM_ERRORS(X) \
    X(0, "cudaSuccess", "CUDA_SUCCESS", "no error") \
    X(1, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument") \
    X(2, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory") \
    X(3, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED", "initialization error") \
    X(4, "cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED", "driver shutting down") \
    X(5, "cudaErrorProfilerDisabled", "CUDA_ERROR_PROFILER_DISABLED", "profiler disabled while using external profiling tool") \
    X(6, "cudaErrorProfilerNotInitialized", "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiler not initialized: call cudaProfilerInitialize()") \
    X(7, "cudaErrorProfilerAlreadyStarted", "CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started") \
    X(8, "cudaErrorProfilerAlreadyStopped", "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped") \
    X(9, "cudaErrorInvalidConfiguration", NULL, "invalid configuration argument") \
    X(12, "cudaErrorInvalidPitchValue", NULL, "invalid pitch argument") \
    X(13, "cudaErrorInvalidSymbol", NULL, "invalid device symbol") \
    X(16, "cudaErrorInvalidHostPointer", NULL, "invalid host pointer") \
    X(17, "cudaErrorInvalidDevicePointer", NULL, "invalid device pointer") \
    X(18, "cudaErrorInvalidTexture", NULL, "invalid texture reference") \
    X(19, "cudaErrorInvalidTextureBinding", NULL, "texture is not bound to a pointer") \
    X(20, "cudaErrorInvalidChannelDescriptor", NULL, "invalid channel descriptor") \
    X(21, "cudaErrorInvalidMemcpyDirection", NULL, "invalid copy direction for memcpy") \
    X(22, "cudaErrorAddressOfConstant", NULL, "invalid address of constant") \
    X(23, "cudaErrorTextureFetchFailed", NULL, "fetch from texture failed") \
    X(24, "cudaErrorTextureNotBound", NULL, "cannot fetch from a texture that is not bound") \
    X(25, "cudaErrorSynchronizationError", NULL, "incorrect use of __syncthreads()") \
    X(26, "cudaErrorInvalidFilterSetting", NULL, "linear filtering not supported for non-float type") \
    X(27, "cudaErrorInvalidNormSetting", NULL, "read as normalized float not supported for data type") \
    X(28, "cudaErrorMixedDeviceExecution", NULL, "device emulation mode and device execution mode cannot be mixed") \
    X(31, "cudaErrorNotYetImplemented", NULL, "feature not yet implemented") \
    X(32, "cudaErrorMemoryValueTooLarge", NULL, "memory size or pointer value too large to fit in 32 bit") \
    X(34, "cudaErrorStubLibrary", "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library") \
    X(35, "cudaErrorInsufficientDriver", NULL, "CUDA driver version is insufficient for CUDA runtime version") \
    X(36, "cudaErrorCallRequiresNewerDriver", "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "API call is not supported in the installed CUDA driver") \
    X(37, "cudaErrorInvalidSurface", NULL, "invalid surface reference") \
    X(43, "cudaErrorDuplicateVariableName", NULL, "duplicate global variable looked up by string name") \
    X(44, "cudaErrorDuplicateTextureName", NULL, "duplicate texture looked up by string name") \
    X(45, "cudaErrorDuplicateSurfaceName", NULL, "duplicate surface looked up by string name") \
    X(46, "cudaErrorDevicesUnavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable") \
    X(49, "cudaErrorIncompatibleDriverContext", NULL, "incompatible driver context") \
    X(52, "cudaErrorMissingConfiguration", NULL, "__global__ function call is not configured") \
    X(53, "cudaErrorPriorLaunchFailure", NULL, "unspecified launch failure in prior launch") \
    X(65, "cudaErrorLaunchMaxDepthExceeded", NULL, "launch would exceed maximum depth of nested launches") \
    X(66, "cudaErrorLaunchFileScopedTex", NULL, "launch failed because kernel uses unsupported, file-scoped textures (texture objects are supported)") \
    X(67, "cudaErrorLaunchFileScopedSurf", NULL, "launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are supported)") \
    X(68, "cudaErrorSyncDepthExceeded", NULL, "cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth") \
    X(69, "cudaErrorLaunchPendingCountExceeded", NULL, "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount") \
    X(98, "cudaErrorInvalidDeviceFunction", NULL, "invalid device function") \
    X(100, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected") \
    X(101, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal") \
    X(102, "cudaErrorDeviceNotLicensed", "CUDA_ERROR_DEVICE_NOT_LICENSED", "device doesn't have valid Grid license") \
    X(103, "cudaErrorSoftwareValidityNotEstablished", NULL, "integrity checks failed") \
    X(127, "cudaErrorStartupFailure", NULL, "startup failure in cuda runtime") \
    X(200, "cudaErrorInvalidKernelImage", "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid") \
    X(201, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT", "invalid device context") \
    X(202, NULL, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context is already current") \
    X(205, "cudaErrorMapBufferObjectFailed", "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed") \
    X(206, "cudaErrorUnmapBufferObjectFailed", "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed") \
    X(207, "cudaErrorArrayIsMapped", "CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped") \
    X(208, "cudaErrorAlreadyMapped", "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped") \
    X(209, "cudaErrorNoKernelImageForDevice", "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device") \
    X(210, "cudaErrorAlreadyAcquired", "CUDA_ERROR_ALREADY_ACQUIRED", "resource already acquired") \
    X(211, "cudaErrorNotMapped", "CUDA_ERROR_NOT_MAPPED", "resource not mapped") \
    X(212, "cudaErrorNotMappedAsArray", "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "resource not mapped as array") \
    X(213, "cudaErrorNotMappedAsPointer", "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "resource not mapped as pointer") \
    X(214, "cudaErrorECCUncorrectable", "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered") \
    X(215, "cudaErrorUnsupportedLimit", "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture") \
    X(216, "cudaErrorDeviceAlreadyInUse", "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "exclusive-thread device already in use by a different thread") \
    X(217, "cudaErrorPeerAccessUnsupported", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices") \
    X(218, "cudaErrorInvalidPtx", "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed") \
    X(219, "cudaErrorInvalidGraphicsContext", "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid OpenGL or DirectX context") \
    X(220, "cudaErrorNvlinkUncorrectable", "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error detected during the execution") \
    X(221, "cudaErrorJitCompilerNotFound", "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found") \
    X(222, "cudaErrorUnsupportedPtxVersion", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain.") \
    X(223, "cudaErrorJitCompilationDisabled", "CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled") \
    X(224, "cudaErrorUnsupportedExecAffinity", "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the provided execution affinity is not supported") \
    X(225, "cudaErrorUnsupportedDevSideSync", "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the provided PTX contains unsupported call to cudaDeviceSynchronize") \
    X(226, "cudaErrorContained", "CUDA_ERROR_CONTAINED", "Invalid access of peer GPU memory over nvlink or a hardware error") \
    X(300, "cudaErrorInvalidSource", "CUDA_ERROR_INVALID_SOURCE", "device kernel image is invalid") \
    X(301, "cudaErrorFileNotFound", "CUDA_ERROR_FILE_NOT_FOUND", "file not found") \
    X(302, "cudaErrorSharedObjectSymbolNotFound", "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found") \
    X(303, "cudaErrorSharedObjectInitFailed", "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object initialization failed") \
    X(304, "cudaErrorOperatingSystem", "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS") \
    X(400, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle") \
    X(401, "cudaErrorIllegalState", "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state") \
    X(402, "cudaErrorLossyQuery", "CUDA_ERROR_LOSSY_QUERY", "attempted introspection would be semantically lossy") \
    X(500, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found") \
    X(600, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready") \
    X(700, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered") \
    X(701, "cudaErrorLaunchOutOfResources", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch") \
    X(702, "cudaErrorLaunchTimeout", "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated") \
    X(703, "cudaErrorLaunchIncompatibleTexturing", "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch uses incompatible texturing mode") \
    X(704, "cudaErrorPeerAccessAlreadyEnabled", "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled") \
    X(705, "cudaErrorPeerAccessNotEnabled", "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled") \
    X(708, "cudaErrorSetOnActiveProcess", "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process") \
    X(709, "cudaErrorContextIsDestroyed", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed") \
    X(710, "cudaErrorAssert", "CUDA_ERROR_ASSERT", "device-side assert triggered") \
    X(711, "cudaErrorTooManyPeers", "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted") \
    X(712, "cudaErrorHostMemoryAlreadyRegistered", "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped") \
    X(713, "cudaErrorHostMemoryNotRegistered", "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region") \
    X(714, "cudaErrorHardwareStackError", "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error") \
    X(715, "cudaErrorIllegalInstruction", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered") \
    X(716, "cudaErrorMisalignedAddress", "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address") \
    X(717, "cudaErrorInvalidAddressSpace", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on global/shared address space") \
    X(718, "cudaErrorInvalidPc", "CUDA_ERROR_INVALID_PC", "invalid program counter") \
    X(719, "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure") \
    X(720, "cudaErrorCooperativeLaunchTooLarge", "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch") \
    X(721, "cudaErrorTensorMemoryLeak", "CUDA_ERROR_TENSOR_MEMORY_LEAK", "tensor memory not completely freed") \
    X(800, "cudaErrorNotPermitted", "CUDA_ERROR_NOT_PERMITTED", "operation not permitted") \
    X(801, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED", "operation not supported") \
    X(802, "cudaErrorSystemNotReady", "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized") \
    X(803, "cudaErrorSystemDriverMismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination") \
    X(804, "cudaErrorCompatNotSupportedOnDevice", "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW") \
    X(805, "cudaErrorMpsConnectionFailed", "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS client failed to connect to the MPS control daemon or the MPS server") \
    X(806, "cudaErrorMpsRpcFailure", "CUDA_ERROR_MPS_RPC_FAILURE", "the remote procedural call between the MPS server and the MPS client failed") \
    X(807, "cudaErrorMpsServerNotReady", "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS server is not ready to accept new MPS client requests") \
    X(808, "cudaErrorMpsMaxClientsReached", "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the hardware resources required to create MPS client have been exhausted") \
    X(809, "cudaErrorMpsMaxConnectionsReached", "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the hardware resources required to support device connections have been exhausted") \
    X(810, "cudaErrorMpsClientTerminated", "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS client has been terminated by the server") \
    X(811, "cudaErrorCdpNotSupported", "CUDA_ERROR_CDP_NOT_SUPPORTED", "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it") \
    X(812, "cudaErrorCdpVersionMismatch", "CUDA_ERROR_CDP_VERSION_MISMATCH", "unsupported interaction between different versions of CUDA Dynamic Parallelism") \
    X(900, "cudaErrorStreamCaptureUnsupported", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing") \
    X(901, "cudaErrorStreamCaptureInvalidated", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture") \
    X(902, "cudaErrorStreamCaptureMerge", "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences") \
    X(903, "cudaErrorStreamCaptureUnmatched", "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began") \
    X(904, "cudaErrorStreamCaptureUnjoined", "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work") \
    X(905, "cudaErrorStreamCaptureIsolation", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream") \
    X(906, "cudaErrorStreamCaptureImplicit", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream") \
    X(907, "cudaErrorCapturedEvent", "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream") \
    X(908, "cudaErrorStreamCaptureWrongThread", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread") \
    X(909, "cudaErrorTimeout", "CUDA_ERROR_TIMEOUT", "wait operation timed out") \
    X(910, "cudaErrorGraphExecUpdateFailure", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update") \
    X(911, "cudaErrorExternalDevice", "CUDA_ERROR_EXTERNAL_DEVICE", "an async error has occured in external entity outside of CUDA") \
    X(912, "cudaErrorInvalidClusterSize", "CUDA_ERROR_INVALID_CLUSTER_SIZE", "a kernel launch error has occurred due to cluster misconfiguration") \
    X(913, "cudaErrorFunctionNotLoaded", "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function handle is not loaded when calling an API that requires a loaded function") \
    X(914, "cudaErrorInvalidResourceType", "CUDA_ERROR_INVALID_RESOURCE_TYPE", "one or more resources passed in are not valid resource types for the operation") \
    X(915, "cudaErrorInvalidResourceConfiguration", "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "one or more resources are insufficient or non-applicable for the operation") \
    X(916, NULL, "CUDA_ERROR_KEY_ROTATION", "encryption key rotation is needed") \
    X(999, "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "unknown error")
// clang-format on

#endif
