#include "kernels/common/symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *library_open(const char *file, const struct symbol *symbols, int n, void *table)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		return file;
	for (int i = 0; i < n; i++) {
		void *function = dlsym(library, symbols[i].name);

		if (function == NULL)
			return symbols[i].name;
		memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
	}
	return NULL;
}

const void *library_table(struct shared_library *library, struct error *error)
{
	if (library->other != NULL)
		return library->other;
	pthread_mutex_lock(&library->lock);
	if (!library->loaded)
		library->load(&library->failure);
	library->loaded = true;
	pthread_mutex_unlock(&library->lock);
	if (library->failure.message[0] == '\0')
		return library->table;
	error_set(error, library->failure.code, "%s", library->failure.message);
	return NULL;
}

void library_replace(struct shared_library *library, const void *table)
{
	library->other = table;
}
