/* Shared by the tests of base/. */
#ifndef TESTS_BASE_SUPPORT_H
#define TESTS_BASE_SUPPORT_H

/* cmocka.h needs these four in front of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* xorshift64*: the same series on every machine; the seed is part of the test. */
static inline uint64_t random_u64(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 2685821657736338717u;
}

/* 0 <= result < n */
static inline int random_below(uint64_t *state, int n)
{
	return (int)(random_u64(state) >> 33) % n;
}

static inline void assert_error(const struct error *error, enum exit_code code, const char *message)
{
	assert_string_equal(error->message, message);
	assert_int_equal(error->code, code);
}

#define assert_input_error(error, message) assert_error(error, EXIT_CODE_INPUT, message)

/* Parses a copy of exactly `length` bytes, so that a sanitizer sees any read past the end. */
static inline struct node *parse_bytes(
	struct arena *arena, const char *text, size_t length, unsigned flags, struct error *error)
{
	char *copy = malloc(length > 0 ? length : 1);

	memcpy(copy, text, length);
	struct node *root = document_parse(arena, "t", copy, length, flags, error);
	free(copy);
	return root;
}

/* A document that is refused, and the message. */
struct refused {
	const char *text, *message;
};

static inline void assert_refused(const struct refused *cases, int n)
{
	for (int i = 0; i < n; i++) {
		struct arena arena = {0};
		struct error error = {0};
		assert_null(parse_bytes(&arena, cases[i].text, strlen(cases[i].text), 0, &error));
		assert_input_error(&error, cases[i].message);
		arena_finish(&arena);
	}
}

static inline struct node *parse_text(struct arena *arena, const char *text)
{
	struct error error = {0};
	struct node *root = parse_bytes(arena, text, strlen(text), 0, &error);

	assert_string_equal(error.message, "");
	assert_non_null(root);
	return root;
}

#endif
