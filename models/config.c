/* Keys of a Hugging Face config.json. */
#include "models/config.h"

#include <string.h>

const struct node *config_get(const struct node *map, const char *key)
{
	const struct node *node = node_get(map, key);

	return node != NULL && node->kind != NODE_NULL ? node : NULL;
}

const struct node *config_first(const struct node *map, const char *const *keys)
{
	for (int i = 0; keys[i] != NULL; i++)
		if (config_get(map, keys[i]) != NULL)
			return config_get(map, keys[i]);
	return NULL;
}

bool config_missing(const struct node *config, const char *key, struct error *error)
{
	return node_error(
		config, error, "missing key \"%s\", expected a config.json of a whole model", key);
}

bool config_bool(const struct node *map, const char *key, bool *value, struct error *error)
{
	const struct node *node = config_get(map, key);

	return node == NULL || node_bool(node, value, error);
}

bool config_double(const struct node *map, const char *key, double *value, struct error *error)
{
	const struct node *node = config_get(map, key);

	return node == NULL || node_double(node, value, error);
}

bool config_int(const struct node *map, const char *const *keys, bool required, int64_t *value,
	struct error *error)
{
	const struct node *node = config_first(map, keys);

	if (node == NULL)
		return !required || config_missing(map, keys[0], error);
	if (!node_int(node, value, error))
		return false;
	return *value >= 0 ||
	       node_error(node, error, "expected a whole number from 0, got %s", node->text);
}

bool config_refuse_true(const struct node *map, const char *key, struct error *error)
{
	bool value = false;

	if (!config_bool(map, key, &value, error))
		return false;
	return !value || node_error(config_get(map, key), error,
				 "expected false, got true, which is not supported");
}

bool config_string(const struct node *config, const char *key, const char *const *known,
	const char **value, struct error *error)
{
	const struct node *node = config_get(config, key);

	if (node == NULL)
		return true;
	if (!node_string(node, value, error))
		return false;
	for (int i = 0; known[i] != NULL; i++)
		if (strcmp(*value, known[i]) == 0)
			return true;
	return node_error(
		node, error, "expected %s, got \"%s\", which is not supported", known[0], *value);
}
