#include "base/dtype.h"

#include <stddef.h>

const char *const dtype_names[] = {
#define X(suffix, name, bytes) name,
	DTYPES(X)
#undef X
		NULL};

static const int dtype_sizes[] = {
#define X(suffix, name, bytes) bytes,
	DTYPES(X)
#undef X
};

const char *dtype_name(enum dtype dtype)
{
	return dtype_names[dtype];
}

int dtype_bytes(enum dtype dtype)
{
	return dtype_sizes[dtype];
}
