/* Weights out and in again: what is exported starts a run with the very same weights, in the
 * layouts that Hugging Face uses; and files that are not what they say are refused. */
#include "support.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/checkpoints/safetensors.h"

static char folder[64];

static const char *in_folder(const char *name)
{
	static char paths[4][160];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static int set_up(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/shardplan-safetensors-XXXXXX");
	return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

/* Trains one step from `weights` (NULL: random) at rate 0 without decay, so that the first loss
 * and the weights are those that it started from; leaves a checkpoint. */
static double train(const char *model, int64_t ranks, const char *options, const char *weights,
	const char *checkpoint, struct error *error)
{
	struct run run;
	struct executor_job job = run_job(1);
	double loss = 0;

	run_plan(&run, model, ranks, options);
	job.training.learning_rate = 0;
	job.weights = weights;
	job.checkpoint = checkpoint;
	*error = (struct error){0};
	if (run_train(&run, &job))
		loss = run.measurement.losses[0];
	else
		*error = run.error;
	run_finish(&run);
	return loss;
}

static void read_all(const char *path, const char *model_text, float **values, int64_t *n)
{
	struct arena arena = {0};
	struct model *model;
	struct safetensors file;
	struct error error = {0};

	assert_true(model_parse(&arena, "model", model_text, strlen(model_text), &model, &error));
	if (!safetensors_open(&arena, path, model, &file, &error))
		fail_msg("%s", error.message);
	*n = 0;
	for (int p = 0; p < model->n_parameters; p++)
		*n += model->parameters[p].elements;
	*values = malloc((size_t)*n * sizeof(float));
	assert_non_null(*values);
	float *to = *values;
	for (int p = 0; p < model->n_parameters; p++) {
		safetensors_read(&file, model, p, 0, model->parameters[p].elements, to);
		to += model->parameters[p].elements;
	}
	safetensors_close(&file);
	arena_finish(&arena);
}

static void what_is_exported_starts_the_same_run(void **state)
{
	static const char *const models[] = {TINY_GPT2, TINY_LLAMA, TINY_QWEN, TINY_MIXTRAL};
	static const char options[] = "strategy=FULL_SHARD micro_batch=1 seq_len=8";
	static const char others[] = "strategy=NO_SHARD micro_batch=2 seq_len=8 wrap=model";

	(void)state;
	for (int i = 0; i < COUNT_OF(models); i++) {
		char first[32], second[32];
		struct error error;
		float *a, *b;
		int64_t n_a, n_b;
		snprintf(first, sizeof(first), "a%d", i);
		snprintf(second, sizeof(second), "b%d", i);
		double random = train(models[i], 4, options, NULL, in_folder(first), &error);
		assert_string_equal(error.message, "");
		assert_true(executor_export_safetensors(
			in_folder(first), in_folder("a.safetensors"), &error));
		double again = train(models[i], 4, options, in_folder("a.safetensors"),
			in_folder(second), &error);
		if (random != again)
			fail_msg("loss %.17g, from the file %.17g (%s)", random, again,
				error.message);
		assert_true(executor_export_safetensors(
			in_folder(second), in_folder("b.safetensors"), &error));
		read_all(in_folder("a.safetensors"), models[i], &a, &n_a);
		read_all(in_folder("b.safetensors"), models[i], &b, &n_b);
		assert_int_equal(n_a, n_b);
		assert_memory_equal(a, b, (size_t)n_a * sizeof(float));
		/* Other ranks and another strategy read the same. */
		double other =
			train(models[i], 2, others, in_folder("a.safetensors"), NULL, &error);
		assert_true(other == random);
		free(a);
		free(b);
	}
}

/* A file by hand: header text, then `bytes` of zeros. */
static const char *write_file(const char *name, const char *header, int64_t length, size_t bytes)
{
	const char *path = in_folder(name);
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	for (int i = 0; i < 8; i++)
		fputc((int)((uint64_t)length >> 8 * i & 255), file);
	fputs(header, file);
	for (size_t i = 0; i < bytes; i++)
		fputc(0, file);
	fclose(file);
	return path;
}

static void expect(const char *path, const char *message)
{
	struct error error;

	train(TINY_GPT2, 2, "strategy=FULL_SHARD micro_batch=1 seq_len=8", path, NULL, &error);
	if (strstr(error.message, message) == NULL)
		fail_msg("%s: expected \"%s\", got \"%s\"", path, message, error.message);
	assert_int_equal(error.code, EXIT_CODE_INPUT);
}

#define HEADER(text) text, (int64_t)sizeof(text) - 1

static void bad_files_are_refused(void **state)
{
	(void)state;
	expect("/nonexistent.safetensors", "No such file");
	expect(write_file("long", "{}", 1 << 20, 0), "its header would have");
	expect(write_file("negative", "{}", -1, 0), "not a safetensors file");
	expect(write_file("list", HEADER("[1]"), 0), "expected a map");
	expect(write_file("empty", HEADER("{}"), 0), "wte.weight is missing");
	expect(write_file("dtype",
		       HEADER("{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}"),
		       1),
		"expected F32, BF16 or F16");
	expect(write_file("outside",
		       HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"),
		       4),
		"within the 4 bytes");
	expect(write_file("huge",
		       HEADER("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
			      "\"data_offsets\":[0,8]}}"),
		       8),
		"can be counted");
	expect(write_file("shape",
		       HEADER("{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],"
			      "\"data_offsets\":[0,8]}}"),
		       8),
		"expected shape [259, 18]");
}

/* bf16 and fp16 are read as what they stand for. */
static void small_types_are_widened(void **state)
{
	static const unsigned char data[] = {0x80, 0x3f, 0x00, 0xc0, /* bf16: 1, -2 */
		0x00, 0x3c, 0x01, 0x00, 0x00, 0xfc};                 /* fp16: 1, 2^-24, -inf */
	struct safetensor tensors[] = {{.entry.elements = 2, .dtype = DTYPE_BF16, .data = data},
		{.entry.elements = 3, .dtype = DTYPE_FP16, .data = data + 4}};
	int of_parameter[] = {0, 1}, parts[] = {0, 1};
	bool transposed[] = {false, false};
	struct parameter parameters[2] = {{.shape = {2, 1}}, {.shape = {3, 1}}};
	const struct model model = {.n_parameters = 2, .parameters = parameters};
	const struct safetensors file = {.n = 2,
		.tensors = tensors,
		.of_parameter = of_parameter,
		.parts = parts,
		.transposed = transposed};
	float values[3];

	(void)state;
	safetensors_read(&file, &model, 0, 0, 2, values);
	assert_true(values[0] == 1 && values[1] == -2);
	safetensors_read(&file, &model, 1, 0, 3, values);
	assert_true(values[0] == 1 && values[1] == 0x1p-24f && values[2] < -1e30f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_exported_starts_the_same_run),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(small_types_are_widened),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
