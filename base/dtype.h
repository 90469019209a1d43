/* Element types of tensors. One table, DTYPES, declares them. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>

/* X(enum suffix, name in files and options, bytes per element) */
#define DTYPES(X)                                                                                  \
	X(FP32, "fp32", 4)                                                                         \
	X(BF16, "bf16", 2)                                                                         \
	X(FP16, "fp16", 2)                                                                         \
	X(FP8, "fp8", 1)                                                                           \
	X(INT8, "int8", 1)                                                                         \
	X(INT32, "int32", 4)                                                                       \
	X(INT64, "int64", 8)

enum dtype {
#define X(suffix, name, bytes) DTYPE_##suffix,
	DTYPES(X)
#undef X
		DTYPE_COUNT
};

const char *dtype_name(enum dtype dtype);
int dtype_bytes(enum dtype dtype);
/* NULL-terminated list of the names, for messages. */
extern const char *const dtype_names[];

#endif
