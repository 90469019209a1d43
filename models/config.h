/* Private to models/: reading keys of a Hugging Face config.json. A null counts as absent. Every
 * function is false with `error` set at the key when it holds something else than expected. */
#ifndef MODELS_CONFIG_H
#define MODELS_CONFIG_H

#include "base/base.h"

const struct node *config_get(const struct node *map, const char *key); /* NULL = absent or null */
/* The first of the NULL-terminated keys that is there. */
const struct node *config_first(const struct node *map, const char *const *keys);

bool config_missing(const struct node *config, const char *key, struct error *error);

/* Absent: `value` stays. */
bool config_bool(const struct node *map, const char *key, bool *value, struct error *error);
bool config_double(const struct node *map, const char *key, double *value, struct error *error);
/* A whole number from 0; `required`: an error when absent. */
bool config_int(const struct node *map, const char *const *keys, bool required, int64_t *value,
	struct error *error);

/* "true" under a key that changes the model in a way that we do not count. */
bool config_refuse_true(const struct node *map, const char *key, struct error *error);

/* The value of a string key must be one of `known`; absent: `value` stays. */
bool config_string(const struct node *config, const char *key, const char *const *known,
	const char **value, struct error *error);

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
