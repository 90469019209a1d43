#include "fuzz/manifest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"
#include "executor/checkpoints/seal.h"

/* The manifest is of the model in tests/cli/data/tiny.yaml, all of it and its moments. */
#define DATA_FILE "rank-00000.bin"

static char folder[] = "/tmp/fuzz-manifest-XXXXXX";
static int64_t data_bytes;

static void remove_folder(void)
{
	char path[sizeof(folder) + 32];

	snprintf(path, sizeof(path), "%s/" DATA_FILE, folder);
	unlink(path);
	rmdir(folder);
}

/* A file of that many bytes, none of them written. */
static void make_folder(void)
{
	char path[sizeof(folder) + 32];

	if (mkdtemp(folder) == NULL) {
		perror(folder);
		exit(EXIT_CODE_ENVIRONMENT);
	}
	atexit(remove_folder);
	snprintf(path, sizeof(path), "%s/" DATA_FILE, folder);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, data_bytes) != 0) {
		perror(path);
		exit(EXIT_CODE_ENVIRONMENT);
	}
	close(fd);
}

static struct model *parse_model(struct arena *arena, const struct seeds *seeds)
{
	struct model *model;
	struct error error = {0};

	if (!model_parse(arena, "tiny", seeds->of[0].text, seeds->of[0].length, &model, &error)) {
		fprintf(stderr, "%s\n", error.message);
		exit(EXIT_CODE_INPUT);
	}
	return model;
}

/* Every parameter in one piece of each rank that has a part of it. */
static void add_pieces(struct manifest *manifest, struct checkpoint_file *file)
{
	const struct model *part = manifest->part;

	for (int i = 0; i < part->n_parameters; i++) {
		int64_t ranks = model_parameter_is_cut(part, i) ? model_parts(part) : 1;

		for (int64_t r = 0; r < ranks; r++) {
			manifest->pieces[manifest->n_pieces++] =
				(struct checkpoint_piece){.parameter = i,
					.tensor_rank = r,
					.end = part->parameters[i].elements,
					.offset = file->bytes};
			file->bytes += part->parameters[i].elements * 3 * 4;
		}
	}
}

/* Adds a manifest of `tensor` ranks that parameters are cut over. */
static void add_seed(struct seeds *seeds, const struct model *model, int64_t tensor)
{
	struct arena arena = {0};
	struct error error = {0};
	struct model *part;
	struct digest digest = checkpoint_model_digest(model);
	struct checkpoint_file file = {.name = DATA_FILE, .digest = digest.hex};
	struct manifest manifest = {.folder = folder,
		.run = digest.hex,
		.step = 3,
		.training = training_defaults(),
		.model_digest = digest.hex,
		.plan = "FULL_SHARD",
		.ranks = 1,
		.seq_len = 16,
		.global_batch = 2,
		.data_tokens = 100,
		.arrays = 3,
		.tensor = tensor > 1 ? tensor : 0,
		.n_files = 1,
		.files = &file,
		.pieces =
			ARENA_ARRAY(&arena, struct checkpoint_piece, tensor * model->n_parameters)};
	struct text text = {0};

	if (!model_divide(&arena, model, &(struct division){.tensor = tensor}, &part, &error)) {
		fprintf(stderr, "%s\n", error.message);
		exit(EXIT_CODE_INPUT);
	}
	manifest.part = part;
	add_pieces(&manifest, &file);
	manifest_write(&manifest, model, &text);
	seeds_add(seeds, text.data, text.length);
	if (data_bytes == 0) {
		data_bytes = file.bytes;
		make_folder();
	}
	text_finish(&text);
	arena_finish(&arena);
}

void manifest_seeds(struct seeds *seeds)
{
	static const struct target tiny = {.name = "tiny", .paths = "tests/cli/data/tiny.yaml"};
	struct seeds models = {.root = seeds->root};
	struct arena arena = {0};

	if (!target_seeds(&tiny, &models))
		exit(EXIT_CODE_INPUT);
	struct model *model = parse_model(&arena, &models);
	add_seed(seeds, model, 1);
	add_seed(seeds, model, 2);
	seeds_finish(&models);
	arena_finish(&arena);
}

/* Writes a right checksum where the text ends with one, so that what comes behind that check is
 * tried too. */
static void seal_anew(const char *text, size_t length, struct text *sealed)
{
	static const char seal[] = ",\n  \"xxh3_128\": \"";
	size_t tail = strlen(seal) + 32 + strlen("\"\n}\n");

	text_add_bytes(sealed, text, length);
	if (length < tail || memcmp(text + length - tail, seal, strlen(seal)) != 0)
		return;
	sealed->length = length - tail;
	text_add(sealed, "\n}\n");
	seal_add(sealed);
}

bool manifest_file_read(struct arena *arena, const char *text, size_t length, struct text *printed,
	struct error *error)
{
	struct manifest manifest;
	struct text sealed = {0};

	seal_anew(text, length, &sealed);
	bool ok = manifest_parse(
		arena, folder, text_string(&sealed), sealed.length, NULL, &manifest, error);
	const struct model *model = manifest.model;
	ok = ok &&
	     manifest_parse(arena, folder, sealed.data, sealed.length, model, &manifest, error);
	if (ok)
		manifest_write(&manifest, model, printed);
	text_finish(&sealed);
	return ok;
}
