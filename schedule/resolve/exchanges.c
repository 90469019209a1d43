/* Ways in which ranks exchange tokens: what each asks of the plan and of the machine. */
#include "schedule/resolve/resolve.h"

/* Transformer Engine's copies (module/base.py, fill_userbuffers_buffer_for_all_gather, d0067d0d)
 * know tensors in bf16, in fp8 with one scale, and in mxfp8. */
static bool copies_operands(const struct plan *plan)
{
	bool unknown = plan->fp8 == FP8_BLOCKWISE || plan->fp8 == FP8_NVFP4;

	return !unknown || !runtime_of(plan->runtime)->layers_exchange;
}

static bool check_async_tensor(
	const struct plan *plan, const struct topology *topology, struct error *error)
{
	struct placement placement = topology_place(topology, plan->mesh.tensor, 1);
	bool apart = topology->device.kind != DEVICE_GPU || placement.nodes > 1;
	const char *why =
		plan->mesh.tensor == 1 ? "there is one tensor rank; leave it out, or give --tensor"
		: !plan->sequence_parallel
			? "every rank has all tokens; use off, or --sequence-parallel on"
		: !plan->compile && !runtime_of(plan->runtime)->layers_exchange
			? "torch.compile makes it; use off, or --compile on"
		: plan->serial_tensor
			? "products wait for exchanges; use off, or --serial-tensor off"
		: !copies_operands(plan)
			? "it does not copy operands with the scales of this --fp8; use off"
		: apart ? "GPUs of one node copy from one another; use off, or fewer tensor ranks"
			: NULL;
	return !plan->async_tensor || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--async-tensor on: %s", why);
}

static const char no_experts[] = "the model has no experts; leave it out",
		  one_expert_rank[] = "there is one expert rank; leave it out, or give --expert";

/* DeepEP's kernels need NVLink inside a node, and between nodes instructions that came with Hopper.
 */
static bool check_dispatch(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error)
{
	const struct device *device = &topology->device;
	bool old = device->generation != GENERATION_HOPPER &&
		   device->generation != GENERATION_BLACKWELL;
	bool linked = topology->fabric.kind == FABRIC_NVSWITCH ||
		      topology->fabric.kind == FABRIC_NVLINK_MESH;
	const char *why = model->architecture.experts == 0 ? no_experts
			  : plan->mesh.expert == 1         ? one_expert_rank
			  : plan_expert_tensor(plan) > 1
				  ? "DeepEP sends rows to whole experts; use --expert-tensor 1"
			  : old || !linked
				  ? "DeepEP needs NVLink and Hopper or later; use all-to-all"
				  : NULL;
	return plan->expert_dispatch == DISPATCH_ALL_TO_ALL || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--expert-dispatch deepep: %s", why);
}

/* From transformer_config.py of Megatron-Core (d98e8a64), which refuses the same. */
static bool check_overlap(const struct plan *plan, const struct model *model, struct error *error)
{
	bool alone = plan->mesh.pipeline == 1 && plan->grad_accum == 1;
	bool orders = plan->mesh.pipeline == 1 || plan->pipeline_schedule == PIPELINE_INTERLEAVED;
	const char *why =
		model->architecture.experts == 0 ? no_experts
		: plan->mesh.expert == 1         ? one_expert_rank
		: alone   ? "there is one micro-batch; use off, or give --global-batch or "
			    "--grad-accum"
		: !orders ? "stages pair a forward with a backward where they are interleaved; use "
			    "--pipeline-schedule interleaved"
		: plan_checkpoints(plan, CHECKPOINTING_FULL)
			? "experts are computed once; use --activation-checkpointing none or "
			  "selective"
		: plan_gathers_tokens(plan)
			? "its dispatcher gathers tokens before Megatron-Core 0.9; use off"
			: NULL;
	return !plan->expert_overlap || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--expert-overlap on: %s", why);
}

static bool check_permute(const struct plan *plan, const struct model *model, struct error *error)
{
	return !plan->unfused_permute || model->architecture.experts > 0 ||
	       error_set(error, EXIT_CODE_USAGE, "--unfused-permute on: %s", no_experts);
}

bool plan_check_exchanges(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error)
{
	return check_async_tensor(plan, topology, error) &&
	       check_dispatch(plan, model, topology, error) && check_overlap(plan, model, error) &&
	       check_permute(plan, model, error);
}
