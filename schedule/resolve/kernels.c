/* Kernels that frameworks choose between: what each asks of the model, the plan and the GPU. */
#include "schedule/resolve/resolve.h"

/* FlashAttention-3 takes no slopes of ALiBi and no other bias (hopper/flash_attn_interface.py). */
static bool check_bias(const struct plan *plan, const struct model *model, struct error *error)
{
	enum positions positions = model->architecture.positions;
	if (plan->attention != ATTENTION_FLASH3 ||
		(positions != POSITIONS_ALIBI && positions != POSITIONS_RELATIVE))
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--attention flash3: its kernels add no bias to the scores, which the model's "
		"positions need; use flash");
}

/* The kernels of flash-attn and cuDNN exist from a generation of NVIDIA's GPUs on; flash2 exists
 * for AMD's too. */
static bool check_attention(
	const struct plan *plan, const struct device *device, struct error *error)
{
	static const struct {
		enum device_generation first;
		const char *name;
	} from[] = {
		[ATTENTION_FLASH1] = {GENERATION_TURING, "Turing"},
		[ATTENTION_FLASH2] = {GENERATION_AMPERE, "Ampere"},
		[ATTENTION_FLASH3] = {GENERATION_HOPPER, "Hopper"},
	};
	enum attention_kind kind = plan->attention;
	if (kind >= COUNT_OF(from) || from[kind].name == NULL)
		return true;
	if (device->generation < from[kind].first)
		return error_set(error, EXIT_CODE_USAGE,
			"--attention %s: its kernels need a GPU of %s or later, which %s is not; "
			"use flash or eager",
			attention_kind_names[kind], from[kind].name, device->name);
	if (plan->param_dtype == DTYPE_FP32)
		return error_set(error, EXIT_CODE_USAGE,
			"--attention %s: its kernels compute in bf16 and fp16, not in fp32; "
			"use flash or eager, or --param-dtype bf16",
			attention_kind_names[kind]);
	return true;
}

/* Hugging Face's models are patched, which neither tensor nor context ranks divide (NeMo AutoModel
 * leaves Liger out there). */
static bool check_liger(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct architecture *a = &model->architecture;
	const char *why = a->norm != NORM_RMSNORM ? "it has kernels for models with RMSNorm"
			  : plan->mesh.tensor > 1 || plan->mesh.context > 1
				  ? "its kernels are not for tensor or context ranks"
				  : NULL;
	return !plan->liger || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--liger on: %s; use off", why);
}

/* Eager attention computes all of a sequence under any mask, and the masks of an encoder's decoder
 * are others. */
static bool check_documents(const struct plan *plan, const struct model *model, struct error *error)
{
	long long length = (long long)plan->document_len;
	if (length > plan->seq_len)
		return error_set(error, EXIT_CODE_USAGE,
			"--document-len %lld: a sequence has %lld tokens; use less, or leave it "
			"out",
			length, (long long)plan->seq_len);
	const char *why = plan->attention == ATTENTION_EAGER
				  ? "eager attention computes all of a sequence; use flash"
			  : model->architecture.encoder_layers > 0
				  ? "documents of an encoder are not predicted; leave it out"
			  : !knob_honoured(KNOB_DOCUMENT_LEN, plan->runtime, 1)
				  ? "attention of runtime shardplan masks none; leave it out"
				  : NULL;
	return length == 0 || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--document-len %lld: %s", length, why);
}

bool plan_check_kernels(const struct plan *plan, const struct model *model,
	const struct device *device, struct error *error)
{
	return check_attention(plan, device, error) && check_bias(plan, model, error) &&
	       check_liger(plan, model, error) && check_documents(plan, model, error);
}
