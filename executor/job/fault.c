#include "executor/job/fault.h"

#include <stdio.h>
#include <string.h>

static const char *const fault_names[] = {
#define X(suffix, name) [FAULT_##suffix] = name,
	FAULTS(X)
#undef X
		NULL,
};

/* Reads the number between two places of the text. */
static bool number(const char *start, const char *end, int64_t *value)
{
	char digits[24];

	if (end - start >= (ptrdiff_t)sizeof(digits))
		return false;
	memcpy(digits, start, (size_t)(end - start));
	digits[end - start] = '\0';
	return parse_int(digits, value) && *value >= 0;
}

static int find(const char *name)
{
	for (int i = 0; i < FAULT_COUNT; i++)
		if (strcmp(fault_names[i], name) == 0)
			return i;
	return -1;
}

bool fault_parse(const char *text, struct fault *fault, struct error *error)
{
	static const char step_key[] = "@step=";
	char name[64];

	*fault = (struct fault){.kind = FAULT_NONE, .rank = -1, .step = -1};
	if (text == NULL || text[0] == '\0')
		return true;
	if (!HAVE_FAULTS)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"fault %s: this build has no seeded faults; build with -Dfaults=true",
			text);
	const char *end = text + strlen(text), *at = strstr(text, step_key);
	bool ok = at == NULL || number(at + strlen(step_key), end, &fault->step);
	const char *head = at != NULL ? at : end,
		   *equals = memchr(text, '=', (size_t)(head - text));
	if (equals != NULL)
		ok = ok && number(equals + 1, head, &fault->rank);
	snprintf(name, sizeof(name), "%.*s", (int)((equals != NULL ? equals : head) - text), text);
	int kind = find(name);
	if (kind < 0) {
		const char *near = nearest_name(name, fault_names);

		return error_set(error, EXIT_CODE_USAGE, "no such fault: %s%s%s%s", name,
			near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
	}
	fault->kind = (enum fault_kind)kind;
	return ok || error_set(error, EXIT_CODE_USAGE,
			     "fault %s: expected NAME[=RANK][@step=STEP], got %s", name, text);
}
