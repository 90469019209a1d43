/* Text and token files, the order of windows, and invalid files. */
#include "support.h"

#include <stdlib.h>
#include <unistd.h>

#include "executor/compute/data.h"

static char path[] = "test_data_XXXXXX";

static void write_file(const void *content, size_t length)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, length, file), length);
	fclose(file);
}

static void write_tokens(
	int32_t magic, int32_t version, int32_t count, const void *tokens, size_t bytes)
{
	unsigned char file[4096] = {0};
	const int32_t header[3] = {magic, version, count};

	memcpy(file, header, sizeof(header));
	memcpy(file + 1024, tokens, bytes);
	write_file(file, 1024 + bytes);
}

static void expect_error(int64_t seq_len, int64_t vocabulary, const char *part)
{
	struct error error = {0};
	struct data data;

	assert_false(data_open(&data, path, seq_len, vocabulary, 0, &error));
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	if (strstr(error.message, part) == NULL || strncmp(error.message, path, 6) != 0)
		fail_msg("expected \"%s\" in: %s", part, error.message);
	assert_null(strchr(error.message, '\n'));
}

static void bytes_are_tokens(void **state)
{
	unsigned char text[101];
	struct error error = {0};
	bool seen[10] = {false};
	int32_t tokens[11];
	struct data data;

	(void)state;
	for (int i = 0; i < 101; i++)
		text[i] = (unsigned char)(i + 150);
	write_file(text, sizeof(text));
	assert_true(data_open(&data, path, 10, 256, 5, &error));
	assert_int_equal(data.n_windows, 10);
	for (int64_t g = 0; g < 10; g++) {
		assert_true(data_window(&data, g, tokens, &error));
		int first = tokens[0] - 150;
		assert_int_equal(first % 10, 0);
		assert_false(seen[first / 10]);
		seen[first / 10] = true;
		for (int i = 0; i <= 10; i++)
			assert_int_equal(tokens[i], text[first + i]);
	}
	data_close(&data);
}

/* The second epoch goes through the same windows in another order, and twice in the same. */
static void epochs_differ(void **state)
{
	unsigned char text[1001];
	struct error error = {0};
	int32_t first[6], second[6], again[6];
	struct data data;
	int same = 0;

	(void)state;
	for (int i = 0; i < 1001; i++)
		text[i] = (unsigned char)(i / 5);
	write_file(text, sizeof(text));
	assert_true(data_open(&data, path, 5, 256, 5, &error));
	for (int64_t g = 0; g < data.n_windows; g++) {
		assert_true(data_window(&data, g, first, &error));
		assert_true(data_window(&data, g + data.n_windows, second, &error));
		assert_true(data_window(&data, g, again, &error));
		assert_memory_equal(first, again, sizeof(first));
		same += memcmp(first, second, sizeof(first)) == 0;
	}
	assert_in_range(same, 0, 10);
	data_close(&data);
}

static void token_files(void **state)
{
	uint16_t narrow[40];
	uint32_t wide[40];
	int32_t tokens[40];
	struct error error = {0};
	struct data data;

	(void)state;
	for (int i = 0; i < 40; i++) {
		narrow[i] = (uint16_t)(50000 + i);
		wide[i] = (uint32_t)(128000 + i);
	}
	write_tokens(20240520, 1, 40, narrow, sizeof(narrow));
	assert_true(data_open(&data, path, 39, 50257, 0, &error));
	assert_true(data_window(&data, 3, tokens, &error));
	for (int i = 0; i < 40; i++)
		assert_int_equal(tokens[i], narrow[i]);
	data_close(&data);
	write_tokens(20240801, 7, 40, wide, sizeof(wide));
	assert_true(data_open(&data, path, 39, 128256, 0, &error));
	assert_true(data_window(&data, 0, tokens, &error));
	assert_int_equal(tokens[39], 128039);
	data_close(&data);
	/* A token that the model does not have is named with its place. */
	assert_true(data_open(&data, path, 39, 128020, 0, &error));
	assert_false(data_window(&data, 0, tokens, &error));
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	assert_non_null(strstr(error.message, "token 20 is 128020"));
	data_close(&data);
}

/* As nanoGPT and Megatron-LM write them: nothing but tokens, in the narrowest type. */
static void tokens_alone(void **state)
{
	uint16_t narrow[40];
	uint32_t wide[40];
	int32_t tokens[40];
	struct error error = {0};
	struct data data;
	char text[sizeof(path)];

	(void)state;
	for (int i = 0; i < 40; i++) {
		narrow[i] = (uint16_t)(50000 + i);
		wide[i] = (uint32_t)(128000 + i);
	}
	strcpy(text, path);
	strcpy(path, "test_data.bin");
	write_file(narrow, sizeof(narrow));
	assert_true(data_open(&data, path, 39, 50257, 0, &error));
	assert_true(data.bare && data.n_tokens == 40);
	assert_true(data_window(&data, 0, tokens, &error));
	for (int i = 0; i < 40; i++)
		assert_int_equal(tokens[i], narrow[i]);
	data_close(&data);
	assert_true(data_open(&data, path, 39, 65536, 0, &error));
	assert_int_equal(data.n_tokens, 40);
	data_close(&data);
	/* A text by that name is noticed by its tokens, or its length. */
	assert_true(data_open(&data, path, 39, 256, 0, &error));
	assert_false(data_window(&data, 0, tokens, &error));
	assert_non_null(strstr(error.message, "has 256; a text must not end in .bin"));
	data_close(&data);
	write_file(wide, sizeof(wide));
	assert_true(data_open(&data, path, 39, 65537, 0, &error));
	assert_int_equal(data.n_tokens, 40);
	data_close(&data);
	assert_true(data_open(&data, path, 39, 128256, 0, &error));
	assert_true(data_window(&data, 0, tokens, &error));
	assert_int_equal(tokens[39], 128039);
	data_close(&data);
	for (int i = 0; i < 40; i++)
		wide[i] = (uint32_t)(200 + i);
	write_file(wide, sizeof(wide));
	assert_true(data_open(&data, path, 39, 50257, 0, &error));
	assert_int_equal(data.n_tokens, 40);
	assert_true(data_window(&data, 0, tokens, &error));
	assert_int_equal(tokens[39], 239);
	data_close(&data);
	/* A few zeros are tokens. */
	for (int i = 0; i < 40; i++)
		narrow[i] = (uint16_t)(i % 2 == 0 || i == 31 ? i : 0);
	write_file(narrow, sizeof(narrow));
	assert_true(data_open(&data, path, 39, 50257, 0, &error));
	assert_int_equal(data.n_tokens, 40);
	data_close(&data);
	/* Nothing but zeros may be anything. */
	memset(narrow, 0, sizeof(narrow));
	write_file(narrow, sizeof(narrow));
	assert_true(data_open(&data, path, 39, 50257, 0, &error));
	assert_int_equal(data.n_tokens, 40);
	data_close(&data);
	write_file("an odd number of bytes.", 23);
	expect_error(4, 50257, "expected llm.c's header, or tokens of 16 bits alone, got 23 bytes");
	unlink(path);
	strcpy(path, text);
}

static void bad_files(void **state)
{
	uint16_t tokens[10] = {0};

	(void)state;
	write_file("too short", 9);
	expect_error(9, 256, "has 9 tokens, one sequence needs 10");
	write_file("", 0);
	expect_error(4, 256, "has 0 tokens");
	write_file("some text that is long enough", 29);
	expect_error(4, 255, "the model's vocabulary has 255");
	write_tokens(20240520, 2, 10, tokens, sizeof(tokens));
	expect_error(4, 300, "version, expected 1, got 2");
	write_tokens(20240520, 1, 11, tokens, sizeof(tokens));
	expect_error(4, 300, "its header says 11 tokens, there are 10");
	write_tokens(20240520, 1, -1, tokens, sizeof(tokens));
	expect_error(4, 300, "cut off");
	write_file("\x88\xd8\x34\x01\x01\x00\x00\x00\x05\x00\x00\x00", 12);
	expect_error(4, 300, "cut off");
	unlink(path);
	expect_error(4, 256, "cannot read");
	path[0] = '.', path[1] = '\0';
	struct error error = {0};
	struct data data;
	assert_false(data_open(&data, path, 4, 256, 0, &error));
	assert_non_null(strstr(error.message, "not a regular file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_tokens),
		cmocka_unit_test(epochs_differ),
		cmocka_unit_test(token_files),
		cmocka_unit_test(tokens_alone),
		cmocka_unit_test(bad_files),
	};
	int fd = mkstemp(path);

	if (fd < 0)
		return 1;
	close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
