/* Weights in the safetensors format, with Hugging Face's names and layouts.
 *
 * models/safetensors.h reads the headers. GPT-2's projections are stored [in, out] in the files
 * (its Conv1D), ours are [out, in]; everything else lies as ours does. */
#ifndef EXECUTOR_CHECKPOINTS_SAFETENSORS_H
#define EXECUTOR_CHECKPOINTS_SAFETENSORS_H

#include "executor/checkpoints/shards.h"
#include "models/models.h"

struct safetensor {
	struct safetensors_entry entry;
	enum dtype dtype;          /* fp32, bf16 or fp16 */
	const unsigned char *data; /* in the mapped file, unaligned */
};

struct safetensors_file {
	void *base;
	size_t bytes;
};

struct safetensors {
	int n, n_files;
	struct safetensor *tensors;
	struct safetensors_file *files;
	/* For a model: the tensors of each of its parameters, one or as many as experts, from
	 * parts[of_parameter[p]] on; and whether it is stored [in, out]. */
	int *of_parameter, *parts;
	bool *transposed;
};

/* Tensors that files have of a parameter: of experts, which lie below one another in one of ours,
 * each has its own; and the name of one of them. */
int64_t safetensors_parts(const struct model *model, int parameter);
const char *safetensors_name(
	struct arena *arena, const struct model *model, int parameter, int64_t part);
/* Do files contain that parameter as [in, out]? */
bool safetensors_is_transposed(const struct model *model, int parameter);

/* `path` is a .safetensors file, or a folder with model.safetensors or
 * model.safetensors.index.json. Every parameter of the model must be there in its shape;
 * EXIT_CODE_INPUT names what is not. Tensors that the model has no use for are errors too, but for
 * buffers and for the head of a model whose head is tied. Files stay mapped until closed. */
bool safetensors_open(struct arena *arena, const char *path, const struct model *model,
	struct safetensors *weights, struct error *error);
void safetensors_close(struct safetensors *weights);
/* Elements [begin, begin + n) of a parameter of that model, as fp32. */
void safetensors_read(const struct safetensors *weights, const struct model *model, int parameter,
	int64_t begin, int64_t n, float *out);
/* Fills this rank's shards; moments are left as they are. */
void safetensors_load(const struct safetensors *weights, const struct weights *to);

#endif
