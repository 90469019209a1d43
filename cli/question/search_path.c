/* SHARDPLAN_PATH: folders with the user's own models and topologies. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

static const char *const endings[] = {".yaml", ".yml", ".json", "/config.json"};

/* The next folder of the list; NULL at its end. */
static const char *next_folder(const char **list, struct arena *arena)
{
	while (*list != NULL && **list == ':')
		(*list)++;
	if (*list == NULL || **list == '\0')
		return NULL;
	size_t length = strcspn(*list, ":");
	const char *folder = arena_strndup(arena, *list, length);
	*list += length;
	return folder;
}

const char *search_path_find(struct arena *arena, const char *name)
{
	const char *list = getenv("SHARDPLAN_PATH"), *folder;

	if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
		return NULL;
	while ((folder = next_folder(&list, arena)) != NULL) {
		for (int i = 0; i < COUNT_OF(endings); i++) {
			const char *path = arena_printf(arena, "%s/%s%s", folder, name, endings[i]);
			if (file_exists(path) && !file_is_folder(path))
				return path;
		}
	}
	return NULL;
}

/* The name under which an entry of a folder is found; NULL: it is not. */
static const char *name_of(const char *folder, const char *entry, struct arena *arena)
{
	if (entry[0] == '.')
		return NULL;
	for (int i = 0; i < COUNT_OF(endings) - 1; i++) {
		size_t length = strlen(entry), ending = strlen(endings[i]);
		if (length > ending && strcmp(entry + length - ending, endings[i]) == 0)
			return arena_strndup(arena, entry, length - ending);
	}
	if (file_exists(arena_printf(arena, "%s/%s/config.json", folder, entry)))
		return arena_strdup(arena, entry);
	return NULL;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **search_path_names(struct arena *arena, int *count)
{
	const char *list = getenv("SHARDPLAN_PATH"), *folder;
	const char **found = NULL;
	int n = 0, capacity = 0;

	while ((folder = next_folder(&list, arena)) != NULL) {
		DIR *open_folder = opendir(folder);
		struct dirent *entry;
		while (open_folder != NULL && (entry = readdir(open_folder)) != NULL) {
			const char *name = name_of(folder, entry->d_name, arena);
			if (name == NULL)
				continue;
			found = array_grow(found, &capacity, n + 1, sizeof(*found));
			found[n++] = name;
		}
		if (open_folder != NULL)
			closedir(open_folder);
	}
	if (n > 0)
		qsort(found, (size_t)n, sizeof(*found), compare_names);
	const char **names = ARENA_ARRAY(arena, const char *, n + 1);
	*count = 0;
	for (int i = 0; i < n; i++) {
		if (*count == 0 || strcmp(names[*count - 1], found[i]) != 0)
			names[(*count)++] = found[i];
	}
	free(found);
	return names;
}
