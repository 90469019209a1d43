#include "executor/transports/nccl_config.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

/* --- the configuration --- */

/* Says how much of the configuration each version has; a newer one fills in the rest. */
static const struct layout {
	int since;
	size_t bytes;
} layouts[] = {
	{21800, offsetof(struct nccl_config, name)},
	{22700, offsetof(struct nccl_config, channels_per_net_peer)},
	{22800, sizeof(struct nccl_config)},
};

static const struct layout *layout_of(int version)
{
	const struct layout *found = &layouts[0];

	for (int i = 0; i < COUNT_OF(layouts); i++)
		if (version >= layouts[i].since)
			found = &layouts[i];
	return found;
}

static int version_of(const struct nccl_api *api)
{
	int version = 0;

	return api->ncclGetVersion(&version) == 0 ? version : 0;
}

static bool knows(int version, int since, int wish, const char *name, struct error *error)
{
	return wish == 0 || version >= since ||
	       error_set(error, EXIT_CODE_ENVIRONMENT,
		       "--nccl %s: expected NCCL %d.%d or newer, found %d.%d.%d; "
		       "leave it out, or update libnccl2",
		       name, since / 10000, since / 100 % 100, version / 10000, version / 100 % 100,
		       version % 100);
}

bool nccl_config_make(const struct nccl_api *api, const struct nccl_wish *wish,
	struct nccl_config *config, struct error *error)
{
	int version = version_of(api);
	const struct layout *layout = layout_of(version);

#define X(member, name, since)                                                                     \
	if (!knows(version, since, wish->member, name, error))                                     \
		return false;
	NCCL_WISHES(X)
#undef X
	*config = (struct nccl_config){.size = layout->bytes,
		.magic = (unsigned)NCCL_CONFIG_MAGIC,
		.version = (unsigned)layout->since,
		.collnet_enable = NCCL_UNDEFINED,
		.shrink_share = NCCL_UNDEFINED,
		.channels_per_net_peer = NCCL_UNDEFINED,
		.nvlink_centric_sched = NCCL_UNDEFINED};
#define X(member, name, since) config->member = wish->member != 0 ? wish->member : NCCL_UNDEFINED;
	NCCL_WISHES(X)
#undef X
	return true;
}

/* --- what is told --- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void say_variables(struct arena *arena, struct text *text)
{
	int n = 0, all = 0;

	while (environ[all] != NULL)
		all++;
	const char **found = ARENA_ARRAY(arena, const char *, all + 1);
	for (int i = 0; i < all; i++)
		if (strncmp(environ[i], "NCCL_", 5) == 0)
			found[n++] = environ[i];
	qsort(found, (size_t)n, sizeof(*found), by_text);
	for (int i = 0; i < n; i++)
		text_printf(text, ", %s", found[i]);
}

const char *nccl_config_say(
	const struct nccl_api *api, const struct nccl_wish *wish, struct arena *arena)
{
	int version = version_of(api);
	struct text text = {0}, wishes = {0};

	text_printf(&text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
	nccl_wish_print(wish, &wishes);
	if (wishes.length > 0)
		text_printf(&text, ", %s", text_string(&wishes));
	say_variables(arena, &text);
	const char *said = arena_strdup(arena, text_string(&text));
	text_finish(&wishes);
	text_finish(&text);
	return said;
}
