/* Roofline of matrix products, attention, element-wise kernels. */
#include "simulator/costs/compute.h"

#include "simulator/costs/attention.h"
#include "simulator/costs/executor_kernels.h"
#include "simulator/costs/experts.h"
#include "simulator/costs/fp8.h"
#include "simulator/devices/devices.h"

#include <math.h>

/* Roofline: adds work that takes the longer of `arithmetic` s and of `memory` s for its traffic. */
static void add_bound(struct cost *cost, double arithmetic, double memory)
{
	if (arithmetic >= memory)
		cost->arithmetic += arithmetic;
	else
		cost->memory += memory;
	cost->device += fmax(arithmetic, memory);
}

/* A product with a result of dtype `result`. */
static void add_gemm_to(const struct machine *machine, const struct gemm_shape *gemm,
	enum dtype result, struct cost *cost)
{
	double arithmetic = gemm_arithmetic(machine, gemm);
	double memory = gemm_mixed_bytes(gemm, machine->dtype, result) / machine->product_bandwidth;
	double both = product_model(machine, arithmetic, memory) * product_ratio(machine, gemm);

	cost->flops += gemm_flops(gemm);
	if (machine->gpu && machine->peak_flops > 0)
		both = fmax(both, gemm_flops(gemm) / machine->peak_flops);
	add_bound(cost, arithmetic >= memory ? both : 0, arithmetic >= memory ? 0 : both);
}

static void add_gemm(
	const struct machine *machine, const struct gemm_shape *gemm, struct cost *cost)
{
	add_gemm_to(machine, gemm, machine->dtype, cost);
}

double cost_gemm(const struct topology *topology, enum dtype dtype, const struct gemm_shape *gemm)
{
	struct machine machine;
	struct cost cost = {0};

	if (dtype == DTYPE_FP8) {
		machine_init(&machine, topology, NULL, DTYPE_BF16);
		machine = machine_in_fp8(&machine);
		add_gemm_to(&machine, gemm, DTYPE_BF16, &cost);
	} else {
		machine_init(&machine, topology, NULL, dtype);
		add_gemm(&machine, gemm, &cost);
	}
	return cost.device + machine.kernel_overhead;
}

double cost_attention(
	const struct topology *topology, enum dtype dtype, const struct attention_shape *shape)
{
	const struct architecture *a = shape->architecture;
	double tokens = (double)shape->sequences * (double)shape->seq_len;
	double square =
		4 * tokens * (double)shape->seq_len * (double)a->heads * (double)a->head_dim;
	bool forward = shape->pass == PASS_FORWARD;
	struct machine machine;

	machine_init(&machine, topology, NULL, dtype);
	if (attention_is_flash(shape->kind))
		square *= forward ? 0.5 : 1.25;
	else
		square *= forward ? 1 : 2;
	return square / attention_rate(&machine, shape) + machine.kernel_overhead;
}

/* Liger's RMSNorm, SwiGLU and GeGLU, and its RoPE, which is all that the core of attention does
 * beside its flash kernel. */
static bool is_ligers(
	const struct plan *plan, enum module_kind kind, const struct module_work *work)
{
	bool norm = kind == MODULE_NORM || kind == MODULE_QUERY_NORM || kind == MODULE_KEY_NORM;
	bool rope = kind == MODULE_ATTENTION_CORE && attention_is_flash(plan->attention);

	return plan->liger && (norm || rope || work->activations > 0);
}

/* Our own kernels are written fused; PyTorch's are once compiled. */
static bool is_fused(
	const struct schedule *schedule, enum module_kind kind, const struct module_work *work)
{
	const struct runtime *runtime = runtime_of(schedule->plan.runtime);

	return schedule->plan.compile || is_ligers(&schedule->plan, kind, work) ||
	       (work->activations > 0 ? runtime->fused_activations : runtime->fused_kernels);
}

static bool has_fused_loss(const struct schedule *schedule)
{
	return schedule->plan.compile || schedule->plan.loss >= LOSS_FUSED;
}

/* Seconds for elements at a rate per thread; 0: the rate is not known. */
static double rate_time(const struct machine *machine, double elements, double rate)
{
	return rate > 0 ? elements / rate / machine->core_share : 0;
}

/* All three products of the head have rows of logits on one side. torch.compile pads them. */
static double head_times(const struct machine *machine, const struct plan *plan,
	const struct model *model, enum module_kind kind)
{
	int64_t row = plan_logits_stride(plan, model->architecture.vocab);

	if (kind != MODULE_HEAD || !machine->gpu || plan->compile ||
		dtype_bytes(machine->dtype) != 2 || row * 2 % 16 == 0)
		return 1;
	return generation_unaligned(machine->topology->device.generation);
}

/* The most that one launch for all experts reaches, as a share of the peak: PyTorch's
 * (torch._grouped_mm) on B200 reached 712 to 863 TFLOP/s in both passes together, 785 in the median
 * of eight (torchao, prototype/moe_training, PyTorch 2.10). On H200 it is as fast as products one
 * by one (pytorch pull 156203, issue 163425). FLOP/s; INFINITY: no limit of its own. */
static double grouped_rate(
	const struct machine *machine, const struct plan *plan, enum module_kind kind)
{
	static const double blackwell = 0.35;
	const struct device *device = &machine->topology->device;

	return module_kind_is_of_experts(kind) && device->generation == GENERATION_BLACKWELL &&
			       runtime_of(plan->runtime)->experts.adds_by_index
		       ? blackwell * device_peak_flops(device, machine->dtype)
		       : INFINITY;
}

static void add_products(const struct machine *machine, const struct module_work *work,
	double times, double most, struct cost *cost)
{
	for (int i = 0; i < work->n_gemms; i++) {
		struct cost one = {0};

		add_gemm(machine, &work->gemms[i], &one);
		one.arithmetic = fmax(one.arithmetic, one.flops / most);
		cost->flops += one.flops;
		cost->unaligned += (times - 1) * one.device;
		add_bound(cost, times * one.arithmetic, times * one.memory);
	}
}

/* Products of operands in fp8, and the casts before them; returns the kernels of these. */
static double add_fp8_products(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, const struct module_work *work,
	struct cost *cost)
{
	const struct machine low = fp8_machine(machine, plan);
	struct module_work forward;

	model_module_work(model, module, PASS_FORWARD, plan->micro_batch, plan->seq_len,
		dtype_bytes(plan->param_dtype), plan_attending(plan), &forward);
	const struct fp8_casts casts = fp8_casts_of(
		plan, model, machine->topology->device.generation, module, &forward.gemms[0], pass);
	for (int i = 0; i < work->n_gemms; i++)
		add_gemm_to(i < work->n_gemms - work->n_of_adapter ? &low : machine,
			&work->gemms[i], machine->dtype, cost);
	add_bound(cost, 0, casts.bytes / machine->memory_bandwidth);
	return casts.kernels;
}

/* The tokens that a query meets; 0: half of the sequence, or of a round's part of it. In rounds
 * every document has a part in each. */
static double tokens_seen(const struct plan *plan, const struct architecture *part)
{
	const struct attending attending = plan_attending(plan);
	int64_t length = plan_attended_len(plan);

	if (attending.windows)
		return architecture_seen(part, length);
	return attending.document > 0 ? (double)length / 2 / (double)plan_attention_rounds(plan)
				      : 0;
}

/* A context rank has queries of its part of the tokens, and keys of all; in a ring of as many at a
 * time. Where heads are shared out it has fewer of them, and all tokens. */
static struct attention_shape shape_of(const struct machine *machine, const struct plan *plan,
	const struct model *model, enum pass pass, struct architecture *part)
{
	bool by_heads = plan->context_method == CONTEXT_ALL_TO_ALL;

	*part = model->architecture;
	if (by_heads)
		part->heads = max_i64(part->heads / plan->mesh.context, 1);
	return (struct attention_shape){.architecture = part,
		.sequences = plan->micro_batch,
		.seq_len = plan->seq_len / plan_attention_rounds(plan),
		.kind = plan_attention(plan, model, machine->topology->device.generation),
		.seen = tokens_seen(plan, part),
		.pass = pass,
		.queries = by_heads ? plan->seq_len : plan->seq_len / plan->mesh.context};
}

static double traffic(const struct merging *merging, enum pass pass)
{
	return pass == PASS_FORWARD ? merging->forward_traffic : merging->backward_traffic;
}

/* Rounds of attention's core: their part of the work, and merging what they found. */
static void take_rounds(const struct plan *plan, const struct model *model, enum pass pass,
	int rounds, struct module_work *work)
{
	const struct architecture *a = &model->architecture;
	const struct ring_rules *ring = runtime_of(plan->runtime)->ring;
	double part = (double)rounds / (double)plan_attention_rounds(plan);
	double tokens = rounds * (double)model_tokens(model, plan->micro_batch, plan->seq_len);
	double result = (double)(a->heads * a->head_dim),
	       keys = (double)(plan_key_heads(plan, model) * a->head_dim);
	double all = pass == PASS_FORWARD ? result : result + 2 * keys;

	work->attention_flops *= part;
	work->memory_bytes = work->memory_bytes * part + tokens * all * traffic(&ring->fused, pass);
	work->eager_bytes = work->eager_bytes * part + tokens * all * traffic(&ring->eager, pass);
	work->kernels = rounds * (work->kernels + ring->fused.kernels);
	work->eager_kernels = rounds * (work->eager_kernels + ring->eager.kernels);
}

/* Copies that the runtime makes besides. */
static void add_copies(const struct plan *plan, const struct model *model, enum pass pass,
	struct module_work *work)
{
	const struct architecture *a = &model->architecture;
	const struct runtime *runtime = runtime_of(plan->runtime);
	bool forward = pass == PASS_FORWARD, attention = work->attention_flops > 0;
	const struct copies *copies =
		attention ? &runtime->attention_copies : &runtime->activation_copies;
	double tokens = (double)model_tokens(model, plan->micro_batch, plan->seq_len);
	double elements = attention ? tokens * (double)(a->heads * a->head_dim) : work->activations;
	double bytes = elements * copies->elements[!forward] * dtype_bytes(plan->param_dtype);

	if (elements <= 0)
		return;
	work->memory_bytes += bytes;
	work->eager_bytes += bytes;
	work->kernels += copies->launches[!forward];
	work->eager_kernels += copies->launches[!forward];
}

/* Softmax in fp32 of half-precision scores, as PyTorch's operations do it: forward writes twice as
 * many bytes and casts them back, backward casts first and reads twice as many. That is beside the
 * passes of models/flops.c. Fused kernels make no more. */
static void add_scores_in_fp32(const struct plan *plan, const struct model *model, enum pass pass,
	struct module_work *work)
{
	double tokens = (double)model_tokens(model, plan->micro_batch, plan->seq_len);
	double scores = tokens * (double)plan->seq_len * (double)model->architecture.heads;
	double passes = pass == PASS_FORWARD ? 4 : 5;

	work->eager_bytes += passes * scores * (double)dtype_bytes(plan->param_dtype);
	work->eager_kernels++;
}

static double add_module(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, int module, enum pass pass, const struct module_work *work,
	struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	enum module_kind kind = model->modules[module].kind;
	bool fused = is_fused(schedule, kind, work);
	double kernels = fused ? work->kernels : work->eager_kernels;

	if (fp8_converts(plan, model, module))
		kernels += add_fp8_products(machine, plan, model, module, pass, work, cost);
	else
		add_products(machine, work, head_times(machine, plan, model, kind),
			grouped_rate(machine, plan, kind), cost);
	if (work->attention_flops > 0) {
		struct architecture part;
		const struct attention_shape shape = shape_of(machine, plan, model, pass, &part);

		cost->flops += work->attention_flops;
		add_bound(cost, work->attention_flops / attention_rate(machine, &shape), 0);
	}
	add_bound(cost, rate_time(machine, work->activations, machine->activation_rate),
		(fused ? work->memory_bytes : work->eager_bytes) / machine->memory_bandwidth);
	cost->device += kernels * machine->kernel_overhead;
	return kernels;
}

/* The same of what was measured kernel by kernel. */
static double add_own_leaf(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, const struct module_work *counted,
	struct cost *cost)
{
	const struct own_work work = own_leaf(machine, plan, model, module, pass);
	double kernels = work.kernels + counted->n_gemms;

	if (fp8_converts(plan, model, module))
		kernels += add_fp8_products(machine, plan, model, module, pass, counted, cost);
	else
		for (int i = 0; i < counted->n_gemms; i++)
			add_gemm(machine, &counted->gemms[i], cost);
	cost->flops += counted->attention_flops;
	add_bound(cost, work.arithmetic, 0);
	add_bound(cost, 0, work.memory);
	cost->device += kernels * machine->kernel_overhead;
	return kernels;
}

/* The last leaf of a block: what recomputation may leave out. */
static bool is_left_out(
	const struct schedule *schedule, const struct op *op, const struct module *m)
{
	return op->kind == OP_RECOMPUTE && m->kind == MODULE_DOWN && m->adapter < 0 &&
	       runtime_of(schedule->plan.runtime)->recompute_stops_early;
}

/* Does a compiled recomputation end with the last product of experts? No result that was added up
 * is needed again. */
static bool ends_with_product(
	const struct schedule *schedule, const struct op *op, const struct module *m)
{
	return op->kind == OP_RECOMPUTE && m->kind == MODULE_EXPERTS_DOWN &&
	       schedule->plan.compile && runtime_of(schedule->plan.runtime)->experts.adds_by_index;
}

/* Parameters whose gradients an operation writes. */
static double gradient_elements(const struct model *model, const struct op *op)
{
	double elements = 0;

	for (int m = op->first_module; m < op->end_module; m++)
		elements += (double)model_trained_elements(model, m);
	return elements;
}

/* Exact sums: per sequence, a scratch that is zeroed and read, and sums of 8 bytes that are read
 * and written, one after the other. 1.3 ns an element (docs/reproducible.md). */
static void add_exact_sums(const struct machine *machine, const struct schedule *schedule,
	const struct op *op, double elements, struct cost *cost)
{
	static const double bytes_per_element = 24, seconds_per_element = 1.3e-9;

	if (schedule->plan.gradient_sums != SUMS_EXACT || op->kind != OP_BACKWARD)
		return;
	elements *= (double)schedule->plan.micro_batch;
	add_bound(cost, elements * seconds_per_element / machine->core_share,
		elements * bytes_per_element / machine->memory_bandwidth);
}

bool compute_adds_gradients(const struct schedule *schedule, const struct op *op)
{
	const struct plan *plan = &schedule->plan;

	return op->kind == OP_BACKWARD && op->micro_batch > 0 && !plan->sync_each_micro_batch &&
	       plan->gradient_sums != SUMS_EXACT && runtime_of(plan->runtime)->host_is_compute &&
	       topology_issues_inline(schedule->topology);
}

/* The product that computes a gradient adds it to the one that is there: one more read. */
static void add_gradients(const struct machine *machine, const struct schedule *schedule,
	const struct op *op, double elements, struct cost *cost)
{
	double bytes = elements * dtype_bytes(plan_gradient_dtype(&schedule->plan));

	if (compute_adds_gradients(schedule, op))
		add_bound(cost, 0, bytes / machine->memory_bandwidth);
}

enum pass compute_pass(enum op_kind kind)
{
	return kind == OP_BACKWARD          ? PASS_BACKWARD
	       : kind == OP_BACKWARD_INPUT  ? PASS_BACKWARD_INPUT
	       : kind == OP_BACKWARD_WEIGHT ? PASS_BACKWARD_WEIGHT
					    : PASS_FORWARD;
}

/* llm-foundry's trainer (Composer) works out two metrics of each micro-batch from the logits, the
 * cross entropy and the perplexity: a cast to fp32 and a log-softmax for each. Its models are MPT.
 */
static double metric_bytes(const struct schedule *schedule, double width)
{
	if (schedule->model->architecture.family != FAMILY_MPT)
		return 0;
	return 2 * (width + 4 + 3 * 4);
}

/* Bytes of memory traffic per logit, of both passes, for logits of `width` bytes.
 * Fused or compiled: read for the maximum and for the sum, read and overwritten by backward.
 * Eager: a cast to fp32, log-softmax (two reads for maximum and sum, read, write), and backward the
 * gradient of the nll (write), of log-softmax (two reads, write), of the cast.
 * Parallel: maximum (read), subtraction, exponential, sum (read), quotient, and in backward a
 * product, all others a read and a write in fp32; the casts as before. */
static double loss_bytes(const struct schedule *schedule)
{
	double width = dtype_bytes(schedule->plan.param_dtype);
	double casts = width < 4 && schedule->plan.loss != LOSS_NATIVE ? 2 * (width + 4) : 0;
	double metrics = metric_bytes(schedule, width);

	if (has_fused_loss(schedule))
		return 4 * width + metrics;
	if (schedule->plan.loss == LOSS_PARALLEL)
		return casts + 10 * 4 + metrics;
	return casts + 7 * (casts > 0 ? 4 : width) + metrics;
}

static void limited_cost(const struct machine *machine, double bytes, double bandwidth,
	double arithmetic, double kernels, struct cost *cost)
{
	add_bound(cost, arithmetic, bytes / bandwidth);
	cost->device += kernels * machine->kernel_overhead;
}

static double add_loss(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	double logits = (double)model_tokens(model, plan->micro_batch, plan->seq_len) *
			(double)model->architecture.vocab *
			(double)architecture_losses(&model->architecture);
	double kernels = has_fused_loss(schedule) ? 2 : 8;

	if (own_kernels(machine, schedule)) {
		add_bound(cost, 0, own_loss(machine, schedule));
		cost->device += kernels * machine->kernel_overhead;
		return kernels;
	}
	limited_cost(machine, logits * loss_bytes(schedule), machine->memory_bandwidth,
		rate_time(machine, logits, machine->loss_rate), kernels, cost);
	return kernels;
}

static void add_module_work(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, int module, enum pass pass, const struct module_work *work,
	double *kernels, struct cost *cost)
{
	if (!own_kernels(machine, schedule)) {
		*kernels += add_module(machine, schedule, model, module, pass, work, cost);
		*kernels += experts_operations(machine, &schedule->plan, model, module, pass, cost);
		return;
	}
	*kernels += add_own_leaf(machine, &schedule->plan, model, module, pass, work, cost);
}

/* The chunked head: one product for each chunk of rows. */
static void add_chunks(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, int module, enum pass pass, double *kernels, struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	int64_t all = plan->micro_batch * plan->seq_len;
	int64_t chunks = plan_head_chunks(plan, machine->topology->device.kind,
		model_tokens(model, plan->micro_batch, plan->seq_len));
	struct module_work work;

	model_module_work(model, module, pass, 1, (all + chunks - 1) / chunks,
		dtype_bytes(plan->param_dtype), plan_attending(plan), &work);
	for (int i = 0; i < work.n_gemms; i++)
		work.gemms[i].count *= chunks;
	add_module_work(machine, schedule, model, module, pass, &work, kernels, cost);
	cost->device += (double)((chunks - 1) * work.n_gemms) * machine->kernel_overhead;
	*kernels += (double)((chunks - 1) * work.n_gemms);
}

/* Backward computes the head forward too, and the loss (plan_chunks_head). */
static void add_chunked_head(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, int module, enum pass pass, double *kernels, struct cost *cost)
{
	if (pass == PASS_FORWARD)
		return;
	add_chunks(machine, schedule, model, module, pass, kernels, cost);
	if (pass == PASS_BACKWARD_WEIGHT)
		return;
	add_chunks(machine, schedule, model, module, PASS_FORWARD, kernels, cost);
	*kernels += add_loss(machine, schedule, model, cost);
}

/* Where any rounding will do, `train` makes the gradients of the input of query, key and value, and
 * of gate and up, in one product, that of the first of them, when their weights are in one unit
 * (executor/compute/backward.c). */
static void join_inputs(const struct plan *plan, const struct model *model, int module,
	enum pass pass, struct module_work *work)
{
	const struct joined joined = model_joined(model, module);

	if ((pass != PASS_BACKWARD && pass != PASS_BACKWARD_INPUT) ||
		plan->gelu != GELU_IN_PRODUCT || plan->fp8 != FP8_OFF ||
		plan->wrap.kind == WRAP_SIZE || joined.n == 0 ||
		joined.first <= model->first_trained)
		return;
	if (module == joined.first) {
		work->gemms[0].k = joined.width;
		return;
	}
	work->n_gemms--;
	for (int i = 0; i < work->n_gemms; i++)
		work->gemms[i] = work->gemms[i + 1];
}

/* The kernels of a leaf in a CUDA graph are launched with its first one: in two launches of the
 * runtime, the copy of the input to where the graph reads it, and the graph (Transformer Engine's
 * graph.py) [U: Python around them]. */
static double launched(const struct machine *machine, const struct plan *plan,
	const struct model *model, int leaf, double kernels, struct cost *cost)
{
	if (plan->cuda_graph_scope.of == 0 || !plan_captures(plan, model, leaf))
		return kernels;
	if (!plan_begins_graph(plan, model, leaf))
		return 0;
	double tokens = (double)model_stream_tokens(model, plan->micro_batch, plan->seq_len);
	double elements = 2 * tokens * (double)model->architecture.hidden;
	limited_cost(machine, elements * (double)dtype_bytes(plan->param_dtype),
		machine->memory_bandwidth, 0, 1, cost);
	return 2;
}

double compute_range_cost(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, const struct op *op, struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	enum pass pass = compute_pass(op->kind);
	bool chunks = plan_chunks_head(plan);
	double kernels = 0, elements = gradient_elements(model, op);

	for (int i = op->first_module; i < op->end_module; i++) {
		const struct module *module = &model->modules[i];
		struct module_work work;
		double before = kernels;

		if (!module_kind_is_leaf(module->kind) || is_left_out(schedule, op, module))
			continue;
		if (chunks && module->kind == MODULE_HEAD) {
			add_chunked_head(machine, schedule, model, i, pass, &kernels, cost);
			continue;
		}
		model_module_work(model, i, pass, plan->micro_batch, plan->seq_len,
			dtype_bytes(plan->param_dtype), plan_attending(plan), &work);
		if (work.attention_flops > 0 && plan_softmax_in_fp32(plan))
			add_scores_in_fp32(plan, model, pass, &work);
		if (work.attention_flops > 0 && plan_attention_rounds(plan) > 1)
			take_rounds(plan, model, pass, op_rounds(op), &work);
		add_copies(plan, model, pass, &work);
		if (own_kernels(machine, schedule))
			join_inputs(plan, model, i, pass, &work);
		if (ends_with_product(schedule, op, module)) {
			work.memory_bytes = work.eager_bytes = 0;
			kernels += add_module(machine, schedule, model, i, pass, &work, cost);
		} else {
			add_module_work(machine, schedule, model, i, pass, &work, &kernels, cost);
		}
		kernels = before + launched(machine, plan, model, i, kernels - before, cost);
	}
	add_exact_sums(machine, schedule, op, elements, cost);
	add_gradients(machine, schedule, op, elements, cost);
	return kernels;
}

double compute_loss_cost(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, struct cost *cost)
{
	return plan_chunks_head(&schedule->plan) ? 0 : add_loss(machine, schedule, model, cost);
}

double compute_norm_cost(const struct machine *machine, const struct schedule *schedule,
	double bytes, struct cost *cost)
{
	double rate = machine->gradient_norm_rate;

	if (own_kernels(machine, schedule))
		rate = machine->topology->calibration.gradient_norm_rate;
	limited_cost(machine, bytes, machine->memory_bandwidth,
		rate_time(machine, bytes / dtype_bytes(DTYPE_FP32), rate), 1, cost);
	return 1;
}

void traffic_cost(const struct machine *machine, double bytes, double bandwidth, double kernels,
	struct cost *cost)
{
	limited_cost(machine, bytes, bandwidth, 0, kernels, cost);
}
