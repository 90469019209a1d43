/* The topology in the making: values with who said them, and notes. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "topologies/import/draft.h"

enum fact_kind { FACT_KIND_INT, FACT_KIND_DOUBLE, FACT_KIND_ENUM };

static const struct {
	const char *key;
	size_t offset;
	enum fact_kind kind;
} facts[] = {
#define X(suffix, key, member, kind)                                                               \
	[FACT_##suffix] = {key, offsetof(struct topology, member), FACT_KIND_##kind},
	FACTS(X)
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

const char *draft_fact_key(enum fact fact)
{
	return facts[fact].key;
}

double draft_fact(const struct topology *topology, enum fact fact)
{
	const char *member = (const char *)topology + facts[fact].offset;

	switch (facts[fact].kind) {
	case FACT_KIND_INT:
		return (double)*(const int64_t *)member;
	case FACT_KIND_DOUBLE:
		return *(const double *)member;
	case FACT_KIND_ENUM:
		return *(const int *)member;
	}
	return 0;
}

void draft_set_fact(struct topology *topology, enum fact fact, int64_t integer, double number)
{
	char *member = (char *)topology + facts[fact].offset;

	switch (facts[fact].kind) {
	case FACT_KIND_INT:
		*(int64_t *)member = integer;
		break;
	case FACT_KIND_DOUBLE:
		*(double *)member = number;
		break;
	case FACT_KIND_ENUM:
		*(int *)member = (int)integer;
		break;
	}
}

/* Two tools round differently: half a percent is the same bandwidth. */
static bool same_value(double a, double b)
{
	return fabs(a - b) <= 0.005 * fmax(fabs(a), fabs(b));
}

static bool say(struct topology_import *import, enum fact fact, int64_t integer, double number,
	const char *in, const char *by, struct error *error)
{
	double old = draft_fact(&import->topology, fact);
	double new = facts[fact].kind == FACT_KIND_DOUBLE ? number : (double)integer;

	if (import->said_by[fact] == NULL) {
		draft_set_fact(&import->topology, fact, integer, number);
		import->said_by[fact] = arena_strdup(import->arena, by);
		import->said_in[fact] = in;
		return true;
	}
	if (facts[fact].kind == FACT_KIND_DOUBLE ? same_value(old, new) : old == new)
		return true;
	return error_set(error, EXIT_CODE_INPUT,
		"%s: %s is %.10g here, but %.10g in %s; expected texts of one machine", in,
		facts[fact].key, new, old, import->said_in[fact]);
}

bool draft_say_int(struct topology_import *import, enum fact fact, int64_t value, const char *in,
	const char *by, struct error *error)
{
	return say(import, fact, value, 0, in, by, error);
}

bool draft_say_double(struct topology_import *import, enum fact fact, double value, const char *in,
	const char *by, struct error *error)
{
	return say(import, fact, 0, value, in, by, error);
}
