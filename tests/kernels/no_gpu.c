/* A driver without a GPU, for test_cudnn_graph: machine code is "loaded", nothing runs. cuDNN
 * compiles its kernels for a GPU that is only described, and then hands them to the driver. */
enum { STUB_LIBRARY = 34 };

int cuDriverGetVersion(int *version);
int cuGetErrorName(int error, const char **text);
int cuGetErrorString(int error, const char **text);
int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel);
int cuModuleLoadData(void **module);
int cuModuleGetFunction(void **function);
int cuKernelGetAttribute(int *value);
int cuFuncGetAttribute(int *value);

static char anything;

#define ACCEPT(name)                                                                               \
	int name(void);                                                                            \
	int name(void)                                                                             \
	{                                                                                          \
		return 0;                                                                          \
	}
#define REFUSE(name)                                                                               \
	int name(void);                                                                            \
	int name(void)                                                                             \
	{                                                                                          \
		return STUB_LIBRARY;                                                               \
	}
#define GIVE(name)                                                                                 \
	int name(void **object)                                                                    \
	{                                                                                          \
		*object = &anything;                                                               \
		return 0;                                                                          \
	}
#define ZERO(name)                                                                                 \
	int name(int *value)                                                                       \
	{                                                                                          \
		*value = 0;                                                                        \
		return 0;                                                                          \
	}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

int cuGetErrorName(int error, const char **text)
{
	(void)error;
	*text = "no GPU";
	return 0;
}

int cuGetErrorString(int error, const char **text)
{
	return cuGetErrorName(error, text);
}

GIVE(cuLibraryLoadData)
GIVE(cuLibraryGetKernel)
GIVE(cuModuleLoadData)
GIVE(cuModuleGetFunction)
ZERO(cuKernelGetAttribute)
ZERO(cuFuncGetAttribute)
ACCEPT(cuLibraryUnload)
ACCEPT(cuModuleUnload)
ACCEPT(cuKernelSetAttribute)
ACCEPT(cuFuncSetAttribute)

REFUSE(cuInit)
REFUSE(cuCtxGetCurrent)
REFUSE(cuCtxGetDevice)
REFUSE(cuCtxGetLimit)
REFUSE(cuCtxPopCurrent)
REFUSE(cuCtxPushCurrent)
REFUSE(cuDeviceGet)
REFUSE(cuDeviceGetAttribute)
REFUSE(cuDeviceGetCount)
REFUSE(cuDevicePrimaryCtxRelease)
REFUSE(cuDevicePrimaryCtxReset)
REFUSE(cuDevicePrimaryCtxRetain)
REFUSE(cuKernelGetFunction)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuLaunchKernel)
REFUSE(cuLaunchKernelEx)
REFUSE(cuLibraryLoadFromFile)
REFUSE(cuLinkAddData)
REFUSE(cuLinkComplete)
REFUSE(cuLinkCreate)
REFUSE(cuLinkDestroy)
REFUSE(cuMemcpyDtoH_v2)
REFUSE(cuModuleGetGlobal_v2)
REFUSE(cuModuleLoadDataEx)
REFUSE(cuModuleLoadFatBinary)
REFUSE(cuOccupancyMaxPotentialClusterSize)
REFUSE(cuStreamGetCtx)
REFUSE(cuStreamSynchronize)
REFUSE(cuTensorMapEncodeTiled)
