/* Runs the same targets under libFuzzer; FUZZ_TARGET names the one. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct target *target;
	const char *name = getenv("FUZZ_TARGET");
	bool accepted;

	if (target == NULL) {
		struct seeds seeds = {.root = FUZZ_ROOT};
		target = name != NULL ? target_find(name) : NULL;
		if (target == NULL || !target_seeds(target, &seeds)) {
			fputs("FUZZ_TARGET: expected the name of a target\n", stderr);
			exit(EXIT_CODE_USAGE);
		}
		seeds_finish(&seeds);
	}
	char *text = malloc(size + 1);
	if (text == NULL)
		base_out_of_memory(size + 1);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	const char *wrong = judge(target, text, size, &usual_limits, &accepted);
	free(text);
	if (wrong != NULL) {
		fprintf(stderr, "%s: %s\n", target->name, wrong);
		abort();
	}
	return 0;
}
