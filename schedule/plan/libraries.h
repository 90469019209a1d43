/* Versions of the libraries below a runtime, where somebody named them, and what follows from them
 * (docs/runtimes.md, Library versions). What is not named is taken to be recent; the interval of a
 * prediction is wider for it. */
#ifndef SCHEDULE_LIBRARIES_H
#define SCHEDULE_LIBRARIES_H

#include "base/base.h"
#include "models/models.h"
#include "topologies/topologies.h"

/* X(suffix, name) */
#define LIBRARIES(X)                                                                               \
	X(PYTORCH, "pytorch")                                                                      \
	X(CUDA, "cuda")                                                                            \
	X(NCCL, "nccl") X(FLASH_ATTN, "flash-attn") X(MEGATRON_CORE, "megatron-core")

enum library {
#define X(suffix, name) LIBRARY_##suffix,
	LIBRARIES(X)
#undef X
		LIBRARY_COUNT
};

#define LIBRARY_VERSION(major, minor) ((major)*10000 + (minor)*100)

struct libraries {
	const char
		*text; /* "pytorch:2.1.0+cuda:12.1"; also "compile:unknown", and "unknown" alone */
	int version[LIBRARY_COUNT]; /* major * 10000 + minor * 100 + patch; 0: not named */
	bool compile_unknown;       /* nor whether torch.compile was on */
};

struct plan;

/* The value of plan->libraries if none are named. */
extern const struct libraries libraries_unknown;

/* How the knob is decoded; and the same of a text that stays where it is. */
extern const struct field_decoded libraries_decoded;
bool libraries_read(const char *text, struct libraries *libraries);

/* Anything else than `libraries_unknown`. */
bool libraries_named(const struct libraries *libraries);

/* NCCL as PyTorch's wheel brings it, unless named. */
struct libraries plan_libraries(const struct plan *plan);

/* Named, and older than the version. What nobody named is not older than anything. */
bool library_before(const struct libraries *libraries, enum library library, int version);

/* FSDP1 from PyTorch 2.0 on: views of the flat parameter are made on the stream of gathers
 * (_unshard, _use_unsharded_flat_param; before, in the forward of FlattenParamsWrapper), and
 * autograd runs the backward of each operation on the stream of its forward (PyTorch's notes on
 * CUDA semantics). So the flat gradient is made there: a gather that is issued behind it waits for
 * it. */
bool plan_flattens_to_gather(const struct plan *plan);

/* Megatron-Core before 0.9, which has two dispatchers of tokens: the default one gathers the tokens
 * of all ranks that have the experts together, and each rank picks the rows of its own. From then
 * on plans are of the one that sends rows. Before 0.7 autograd keeps both inputs of its gathers. */
bool plan_gathers_tokens(const struct plan *plan);
bool plan_weighs_activations(const struct plan *plan); /* else results are weighed */
bool plan_keeps_picked_rows(const struct plan *plan);

/* Seconds of the issuing thread for a kernel. Megatron-LM before Megatron-Core (2022) took less. */
double plan_host_per_kernel(const struct plan *plan);

/* The same libraries, each as new as the versions go that change a prediction on GPUs of that
 * generation, in `arena`. False: none of them is older. */
bool libraries_newest(const struct libraries *libraries, enum device_generation generation,
	struct arena *arena, struct libraries *newest);

/* PyTorch alone, as new as above, where a plan names no library and PyTorch's attention is then of
 * another generation. False: it is not. */
bool libraries_of_attention(const struct plan *plan, const struct model *model,
	enum device_generation generation, struct libraries *newest);

/* Heads of the keys and values that context ranks exchange. */
int64_t plan_key_heads(const struct plan *plan, const struct model *model);
/* Transformer Engine takes cuDNN's kernels from Hopper on, unless flash-attn or a PyTorch
 * before 2.2 is named. */
enum attention_kind plan_engine_attention(
	const struct plan *plan, enum device_generation generation);
/* The kernel that `flash` stands for: the named flash-attn, or what PyTorch's
 * scaled_dot_product_attention took then on GPUs of that generation; ATTENTION_FLASH when neither
 * decides. */
enum attention_kind plan_attention(
	const struct plan *plan, const struct model *model, enum device_generation generation);

/* Versions that do not have what the plan asks for. EXIT_CODE_USAGE. */
bool libraries_check(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error);

#endif
