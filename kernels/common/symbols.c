#include "kernels/common/symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *symbols_find(void *library, const struct symbol *symbols, int n, void *table)
{
	for (int i = 0; i < n; i++) {
		void *function = dlsym(library, symbols[i].name);

		if (function == NULL)
			return symbols[i].name;
		memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
	}
	return NULL;
}
