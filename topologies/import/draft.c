/* The topology in the making: values with where they come from, and notes. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "topologies/import/draft.h"

enum property_kind { PROPERTY_KIND_INT, PROPERTY_KIND_DOUBLE, PROPERTY_KIND_ENUM };

static const struct {
	const char *key;
	size_t offset;
	enum property_kind kind;
} properties[] = {
#define X(suffix, key, member, kind)                                                               \
	[PROPERTY_##suffix] = {key, offsetof(struct topology, member), PROPERTY_KIND_##kind},
	PROPERTIES(X)
#undef X
};

const char *draft_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

void draft_note(struct topology_import *import, const char *format, ...)
{
	struct text text = {0};
	va_list args;

	if (import->n_notes == NOTES_MAX)
		return;
	va_start(args, format);
	text_vprintf(&text, format, args);
	va_end(args);
	import->notes[import->n_notes++] = arena_strdup(import->arena, text_string(&text));
	text_finish(&text);
}

const char *draft_key(enum property property)
{
	return properties[property].key;
}

double draft_get(const struct topology *topology, enum property property)
{
	const char *member = (const char *)topology + properties[property].offset;

	switch (properties[property].kind) {
	case PROPERTY_KIND_INT:
		return (double)*(const int64_t *)member;
	case PROPERTY_KIND_DOUBLE:
		return *(const double *)member;
	case PROPERTY_KIND_ENUM:
		return *(const int *)member;
	}
	return 0;
}

void draft_put(struct topology *topology, enum property property, int64_t integer, double number)
{
	char *member = (char *)topology + properties[property].offset;

	switch (properties[property].kind) {
	case PROPERTY_KIND_INT:
		*(int64_t *)member = integer;
		break;
	case PROPERTY_KIND_DOUBLE:
		*(double *)member = number;
		break;
	case PROPERTY_KIND_ENUM:
		*(int *)member = (int)integer;
		break;
	}
}

/* Two tools round differently: half a percent is the same bandwidth. */
static bool same_value(double a, double b)
{
	return fabs(a - b) <= 0.005 * fmax(fabs(a), fabs(b));
}

static bool say(struct topology_import *import, enum property property, int64_t integer,
	double number, const char *in, const char *by, struct error *error)
{
	double old = draft_get(&import->topology, property);
	double new = properties[property].kind == PROPERTY_KIND_DOUBLE ? number : (double)integer;

	if (import->given_by[property] == NULL) {
		draft_put(&import->topology, property, integer, number);
		import->given_by[property] = arena_strdup(import->arena, by);
		import->given_in[property] = in;
		return true;
	}
	if (properties[property].kind == PROPERTY_KIND_DOUBLE ? same_value(old, new) : old == new)
		return true;
	return error_set(error, EXIT_CODE_INPUT,
		"%s: %s is %.10g here, but %.10g in %s; expected texts of one machine", in,
		properties[property].key, new, old, import->given_in[property]);
}

bool draft_set_int(struct topology_import *import, enum property property, int64_t value,
	const char *in, const char *by, struct error *error)
{
	return say(import, property, value, 0, in, by, error);
}

bool draft_set_double(struct topology_import *import, enum property property, double value,
	const char *in, const char *by, struct error *error)
{
	return say(import, property, 0, value, in, by, error);
}
