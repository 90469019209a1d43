/* Damage to a seed: bits, digits, pieces, words of the format, and parts of another seed. */
#include <ctype.h>

#include "fuzz/fuzz.h"

/* xorshift64* */
uint64_t draw(uint64_t *state, uint64_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 2685821657736338717u >> 11) % below;
}

/* What hurts in any format. */
static const char *const usual_words[] = {"-1", "0", "1", "1e308", "1e-320", "-0", "nan",
	"9223372036854775807", "9223372036854775808", "18446744073709551616", "4294967296", "\"",
	"'", "{", "}", "[", "]", ":", ": ", ",", "\n", "\t", "  ", "- ", "#", "\\", "\\u0000",
	"\\ud800", "&a", "*a", "!!str", "---\n", "null", "~", "true", "[]", "{}", "\xff",
	"\xc3\xa9", "\xed\xa0\x80", "\xe2\x80\xa8", "\r\n", "\xef\xbb\xbf", "=", "%s", "<", ">",
	"/", "..", "|", "|\n", "TB/s", "GiB", "us", "0x10", "1_000", "inf", "(", ")", "@"};

/* `length` bytes at `at` become those of `piece`. */
static void replace(
	struct text *input, size_t at, size_t length, const char *piece, size_t piece_length)
{
	struct text out = {0};

	text_add_bytes(&out, input->data, at);
	text_add_bytes(&out, piece, piece_length);
	text_add_bytes(&out, input->data + at + length, input->length - at - length);
	text_finish(input);
	*input = out;
}

/* A place, and up to so many bytes behind it. */
static size_t place(const struct text *input, uint64_t *state, size_t most, size_t *length)
{
	size_t at = draw(state, input->length);

	*length = 1 + draw(state, most);
	*length = *length < input->length - at ? *length : input->length - at;
	return at;
}

static size_t longer_piece(uint64_t *state)
{
	static const size_t lengths[] = {1, 4, 16, 64, 400};
	return lengths[draw(state, COUNT_OF(lengths))];
}

static void flip_bit(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	(void)seeds;
	input->data[draw(state, input->length)] ^= (char)(1 << draw(state, 8));
}

/* The next digit from some place on. */
static void change_digit(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	size_t at = draw(state, input->length);

	(void)seeds;
	for (size_t i = 0; i < input->length; i++, at = (at + 1) % input->length) {
		if (isdigit((unsigned char)input->data[at])) {
			input->data[at] = (char)('0' + draw(state, 10));
			return;
		}
	}
}

static void drop_piece(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	size_t length, at = place(input, state, longer_piece(state), &length);

	(void)seeds;
	replace(input, at, length, "", 0);
}

/* A piece stands a second time, here or elsewhere. */
static void repeat_piece(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	size_t length, at = place(input, state, longer_piece(state), &length);
	size_t to = draw(state, 2) ? at : draw(state, input->length);
	char piece[400];

	(void)seeds;
	memcpy(piece, input->data + at, length);
	replace(input, to, 0, piece, length);
}

static void cut(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	(void)seeds;
	input->length = draw(state, input->length);
	input->data[input->length] = '\0';
}

static void put_random_byte(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	(void)seeds;
	input->data[draw(state, input->length)] = (char)draw(state, 256);
}

/* Replaces the rest, from some place on, by another seed. */
static void splice(struct text *input, const struct seeds *seeds, uint64_t *state)
{
	const struct seed *other = &seeds->of[draw(state, (uint64_t)seeds->n)];
	size_t from = draw(state, other->length + 1);

	cut(input, seeds, state);
	text_add_bytes(input, other->text + from, other->length - from);
}

/* The n-th of words separated by blanks; their number where there are fewer. */
static int word_at(const char *words, int n, const char **word, size_t *length)
{
	int i = 0;

	for (const char *at = words; at != NULL && *at != '\0'; i++) {
		*length = strcspn(at, " ");
		*word = at;
		if (i == n)
			return i;
		at += *length + (at[*length] == ' ');
	}
	return i;
}

static void put_word(const struct target *target, struct text *input, uint64_t *state)
{
	const char *word = "";
	size_t length = 0;
	int own = word_at(target->words, -1, &word, &length);
	int n = (int)draw(state, (uint64_t)(COUNT_OF(usual_words) + own));
	if (n < COUNT_OF(usual_words)) {
		word = usual_words[n];
		length = strlen(word);
	} else {
		word_at(target->words, n - COUNT_OF(usual_words), &word, &length);
	}
	size_t replaced, at = place(input, state, 8, &replaced);
	replace(input, at, draw(state, 2) ? replaced : 0, word, length);
}

void mutate(const struct target *target, const struct seeds *seeds, uint64_t *state, size_t most,
	struct text *input)
{
	static void (*const edits[])(struct text *, const struct seeds *, uint64_t *) = {flip_bit,
		change_digit, change_digit, drop_piece, repeat_piece, cut, put_random_byte, splice};
	const struct seed *seed = &seeds->of[draw(state, (uint64_t)seeds->n)];

	text_clear(input);
	text_add_bytes(input, seed->text, seed->length);
	for (uint64_t left = 1 + draw(state, 8) / (1 + draw(state, 4)); left > 0; left--) {
		uint64_t edit = draw(state, COUNT_OF(edits) + 3);
		if (input->length == 0)
			text_add(input, "\n");
		if (edit < COUNT_OF(edits))
			edits[edit](input, seeds, state);
		else
			put_word(target, input, state);
	}
	if (input->length > seed->length + most) {
		input->length = seed->length + most;
		input->data[input->length] = '\0';
	}
}
