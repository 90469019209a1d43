/* Ranks that divide the model: the sizes of each axis that are searched, and where. */
#include "planner/space/filling.h"
#include "planner/space/space.h"
#include "schedule/resolve/resolve.h"

/* Bytes per parameter in mixed precision: fp32 master and moments, a gradient. */
enum { STATE_BYTES = 16 };

/* Do the model's states (parameters, gradients, optimizer) exceed the memory of so many nodes? */
static bool exceeds_nodes(const struct question *question, int nodes)
{
	const struct topology *topology = question->topology;
	double devices = nodes * (double)topology->devices_per_node;
	int64_t limit = question->memory_limit_bytes > 0 ? question->memory_limit_bytes
							 : topology->device.memory_bytes;

	return topology->device.kind == DEVICE_GPU &&
	       STATE_BYTES * (double)question->model->parameter_count > devices * (double)limit;
}

/* Sharing sequences is tried where some device would have no sequence, or sequences are long. */
static bool asks_for_parts(const struct question *question)
{
	enum { LONG = 65536 }; /* tokens */
	return question->divides ||
	       (question_gives(question, KNOB_GLOBAL_BATCH) &&
		       question->asked.global_batch < topology_devices(question->topology)) ||
	       (question_gives(question, KNOB_SEQ_LEN) && question->asked.seq_len >= LONG);
}

/* Tensor ranks are tried where the states of the model exceed the memory of a node, or sequences
 * are shared. */
static bool asks_for_tensor(const struct question *question)
{
	return question->topology->device.kind == DEVICE_GPU &&
	       (asks_for_parts(question) || exceeds_nodes(question, 1));
}

static bool has_knob(const struct filling *f, enum knob_id id)
{
	return knob_table[id].runtimes >> f->plan->runtime & 1;
}

/* Does every rank have whole parameters and gradients (ZeRO-1)? Then axes that divide the model are
 * searched however small it is, because they save most of that memory and of the bytes that ranks
 * reduce. Bounds rule out nearly all of these plans. */
static bool keeps_whole(const struct filling *f)
{
	return f->question->topology->device.kind == DEVICE_GPU &&
	       f->plan->strategy == STRATEGY_ZERO_1 && plan_layout(f->plan) == LAYOUT_WHOLE;
}

/* Tensor ranks: powers of two within a node that divide the heads, where the runtime has them. */
static void add_tensor(struct filling *f)
{
	int64_t heads = f->question->model->architecture.heads;
	int64_t node = f->question->topology->devices_per_node;
	if (!axis_is_free(f, KNOB_TENSOR) || !has_knob(f, KNOB_TENSOR) ||
		!(keeps_whole(f) || asks_for_tensor(f->question)))
		return;
	for (int64_t t = 1; t <= node && node % t == 0 && heads % t == 0; t *= 2)
		axis_add_int(&f->axes->of[KNOB_TENSOR], t);
}

bool space_divide(const struct question *question, struct question *other)
{
	*other = *question;
	other->earlier = NULL;
	other->divides = true;
	bool experts = question->model->architecture.experts > 0 &&
		       question_is_open(question, KNOB_EXPERT);
	return question->topology->device.kind == DEVICE_GPU && !question->divides &&
	       (experts || question_is_open(question, KNOB_TENSOR) ||
		       question_is_open(question, KNOB_CONTEXT));
}

/* Does it take longer to all-reduce gradients between nodes than to compute the step at the
 * device's peak? Stages send activations alone over that network, which takes a fraction of it.
 * Where the batch is open, it is taken to have some sequences a device. */
static bool network_is_slow(const struct filling *f)
{
	enum { SEQUENCES = 8, GRADIENT_BYTES = 4 };
	const struct topology *topology = f->question->topology;
	const struct model *model = f->question->model;
	double devices = (double)topology_devices(topology), nodes = (double)topology->nodes;
	double sequences = question_gives(f->question, KNOB_GLOBAL_BATCH)
				   ? (double)f->question->asked.global_batch / devices
				   : SEQUENCES;
	double flops = model_flops_per_token(model, plan_attended_len(f->plan)) * sequences *
		       (double)f->plan->seq_len;
	double bytes = 2 * (nodes - 1) / nodes * GRADIENT_BYTES * (double)model->trained_count;
	return topology->nodes > 1 && flops * bytes > 0 &&
	       bytes / topology_node_bandwidth(topology) >
		       flops / device_peak_flops(&topology->device, f->plan->param_dtype);
}

/* Are pipeline stages worth a search? Gathers of parameters that are sharded over several nodes
 * have a price that stages do not pay, so a model that exceeds NODES nodes is cut into stages. The
 * parameters of a stage stay whole between micro-batches (torchtitan's default). With experts, of
 * which a token uses few, that pays wherever it fits, which is where a part of the nodes can hold
 * all states. Other strategies are searched with stages only if the user gives the pipeline. */
static bool asks_for_stages(const struct filling *f)
{
	enum { NODES = 4, PART = 4 };
	bool experts = f->question->model->architecture.experts > 0;
	int part = (int)f->question->topology->nodes / PART;
	if (f->plan->strategy != STRATEGY_SHARD_GRAD_OP ||
		f->question->topology->device.kind != DEVICE_GPU)
		return keeps_whole(f);
	/* Where all nodes together cannot hold the states, stages do not help either. */
	if (network_is_slow(f) && !exceeds_nodes(f->question, (int)f->question->topology->nodes))
		return true;
	return experts ? !exceeds_nodes(f->question, part) : exceeds_nodes(f->question, NODES);
}

/* Context ranks, if the runtime has them: powers of two, up to the number that gives every rank a
 * part of a sequence. Parts are no shorter than SHORT tokens if only the length asks for them; up
 * to MOST if nothing fits otherwise. With whole parameters at least FEW are tried, because they
 * save as much of the activations as tensor ranks, for less traffic. */
static void add_context(struct filling *f)
{
	enum { SHORT = 8192, MOST = 64, FEW = 2 };
	int64_t ranks = topology_devices(f->question->topology);
	int64_t most = f->plan->seq_len / SHORT;
	if (!axis_is_free(f, KNOB_CONTEXT) || !has_knob(f, KNOB_CONTEXT) ||
		f->question->topology->device.kind != DEVICE_GPU ||
		!(keeps_whole(f) || asks_for_parts(f->question)))
		return;
	if (keeps_whole(f))
		most = max_i64(2 * most, FEW);
	if (f->question->divides)
		most = MOST;
	if (question_gives(f->question, KNOB_GLOBAL_BATCH))
		most = max_i64(most, ranks / f->question->asked.global_batch);
	for (int64_t c = 1; c <= most && ranks % c == 0 && f->plan->seq_len % (2 * c) == 0; c *= 2)
		axis_add_int(&f->axes->of[KNOB_CONTEXT], c);
}

/* Methods for plans with context ranks, the runtime's own first. With sharded parameters they
 * differ by less than --simplicity, so only that one is tried. All-to-all was never the fastest for
 * a published model, and is tried where it alone attends. */
static void add_context_methods(struct filling *f)
{
	static const enum context_method tried[] = {
		CONTEXT_RING, CONTEXT_ALL_GATHER, CONTEXT_ALL_TO_ALL};
	bool sinks = f->question->model->architecture.attention_sinks;
	bool any = f->axes->of[KNOB_CONTEXT].n > 1 || f->question->asked.mesh.context > 1;
	if (!any || !keeps_whole(f) || !axis_is_free(f, KNOB_CONTEXT_METHOD))
		return;
	for (int i = 0; i < COUNT_OF(tried) - !sinks; i++)
		if (knob_honoured(KNOB_CONTEXT_METHOD, f->plan->runtime, (int)tried[i]))
			axis_add_choice(f, KNOB_CONTEXT_METHOD, (int)tried[i]);
}

/* Pipeline stages, if the runtime has them: powers of two, of at least a node each (half a node if
 * parameters are whole) and at least two blocks. Pipelines longer than published ones (Llama 3
 * 405B: 16, arXiv 2407.21783) are tried only if the user asks for them. */
static void add_stages(struct filling *f)
{
	enum { LONGEST = 16 };
	const struct topology *topology = f->question->topology;
	int64_t most = topology->nodes * (keeps_whole(f) ? 2 : 1);
	int64_t blocks = f->question->model->architecture.layers;
	if (!axis_is_free(f, KNOB_PIPELINE) || !has_knob(f, KNOB_PIPELINE) || !asks_for_stages(f))
		return;
	for (int64_t p = 1; p <= LONGEST && most % p == 0 && 2 * p <= blocks; p *= 2)
		axis_add_int(&f->axes->of[KNOB_PIPELINE], p);
	if (f->axes->of[KNOB_PIPELINE].n < 2)
		f->axes->of[KNOB_PIPELINE].n = 0;
}

/* Schedules for plans with a pipeline; interleaved, if the runtime has it. */
static void add_orders(struct filling *f)
{
	bool any = f->axes->of[KNOB_PIPELINE].n > 1 || f->question->asked.mesh.pipeline > 1;
	if (!any || !axis_is_free(f, KNOB_PIPELINE_SCHEDULE))
		return;
	axis_add_choice(f, KNOB_PIPELINE_SCHEDULE, PIPELINE_1F1B);
	if (!knob_honoured(KNOB_PIPELINE_SCHEDULE, f->plan->runtime, PIPELINE_INTERLEAVED))
		return;
	axis_add_choice(f, KNOB_PIPELINE_SCHEDULE, PIPELINE_INTERLEAVED);
}

/* Virtual stages of interleaved schedules: two, which 0 stands for, four and eight, with at least a
 * block each. */
static void add_virtual_stages(struct filling *f)
{
	enum { FEW = 4, MOST = 8 };
	const struct axis *ranks = &f->axes->of[KNOB_PIPELINE];
	int64_t blocks = f->question->model->architecture.layers;
	int64_t fewest = ranks->n > 1 ? ranks->values[1].number : f->question->asked.mesh.pipeline;
	bool asked = question_gives(f->question, KNOB_PIPELINE_SCHEDULE) &&
		     f->question->asked.pipeline_schedule == PIPELINE_INTERLEAVED;
	if ((f->axes->of[KNOB_PIPELINE_SCHEDULE].n < 2 && !asked) ||
		!axis_is_free(f, KNOB_VIRTUAL_STAGES) || fewest <= 1)
		return;
	axis_add_int(&f->axes->of[KNOB_VIRTUAL_STAGES], 0);
	for (int64_t v = FEW; v <= MOST && v * fewest <= blocks; v *= 2)
		axis_add_int(&f->axes->of[KNOB_VIRTUAL_STAGES], v);
}

/* The most ranks of a node that experts can be dealt out to evenly: 8 of the 72 of an NVL72. */
static int64_t experts_of_node(const struct question *question)
{
	int64_t ranks = max_i64(question->topology->devices_per_node, 2);
	int64_t rest = question->model->architecture.experts;

	while (rest > 0) {
		int64_t next = ranks % rest;
		ranks = rest;
		rest = next;
	}
	return ranks;
}

/* Expert ranks: those of a node, which NVLink connects, and of a few nodes, if they divide the
 * experts. They save gathers of all experts, and memory. */
static void add_experts(struct filling *f)
{
	static const int times[] = {1, 2, 4, 8, 16};
	int64_t experts = f->question->model->architecture.experts;
	int64_t node = experts_of_node(f->question), ranks = plan_ranks(f->plan);
	if (!axis_is_free(f, KNOB_EXPERT) || !has_knob(f, KNOB_EXPERT) || experts == 0 ||
		(f->question->topology->nodes == 1 &&
			f->question->topology->device.kind != DEVICE_GPU))
		return;
	axis_add_int(&f->axes->of[KNOB_EXPERT], 1);
	for (int i = 0; i < COUNT_OF(times) && node > 1; i++)
		if (times[i] * node <= ranks && experts % (times[i] * node) == 0)
			axis_add_int(&f->axes->of[KNOB_EXPERT], times[i] * node);
}

static bool is_tried(const struct question *question, enum knob_id axis, int64_t ranks)
{
	bool asks = axis == KNOB_TENSOR ? asks_for_tensor(question) : asks_for_parts(question);
	return ranks == 1 || (asks && question_is_open(question, axis));
}

/* Resolves the question with as few ranks as possible that divide the model: tensor ranks within a
 * node first, context ranks beyond it. */
static bool resolve_divided(const struct question *question, struct arena *arena, struct plan *plan)
{
	const struct topology *topology = question->topology;
	for (int64_t n = 2; n <= topology_devices(topology); n *= 2)
		for (int64_t t = min_i64(n, topology->devices_per_node); t >= 1; t /= 2) {
			struct question with = *question;
			struct error error = {0};
			if (n % t != 0 || !is_tried(question, KNOB_TENSOR, t) ||
				!is_tried(question, KNOB_CONTEXT, n / t))
				continue;
			question_put(&with, KNOB_TENSOR, (union knob_value){.number = t});
			question_put(&with, KNOB_CONTEXT, (union knob_value){.number = n / t});
			if (plan_resolve(&with, arena, plan, &error))
				return true;
		}
	return false;
}

bool asks_for_expert_ranks(const struct question *question)
{
	bool deepep = question_gives(question, KNOB_EXPERT_DISPATCH) &&
		      question->asked.expert_dispatch == DISPATCH_DEEPEP;
	bool beside =
		question_gives(question, KNOB_EXPERT_OVERLAP) && question->asked.expert_overlap;
	return deepep || beside;
}

static bool asks_for_pairs(const struct question *question)
{
	return question_gives(question, KNOB_EXPERT_OVERLAP) && question->asked.expert_overlap &&
	       question_gives(question, KNOB_PIPELINE) && question->asked.mesh.pipeline > 1;
}

/* To begin with, as many as a node has; and stages in an order that pairs passes. */
static struct question with_expert_ranks(const struct question *question)
{
	struct question with = *question;
	if (asks_for_pairs(question) && question_is_open(question, KNOB_PIPELINE_SCHEDULE))
		question_put(&with, KNOB_PIPELINE_SCHEDULE,
			(union knob_value){.choice = PIPELINE_INTERLEAVED});
	if (asks_for_expert_ranks(question) && question_is_open(question, KNOB_EXPERT) &&
		question->model->architecture.experts > 0)
		question_put(&with, KNOB_EXPERT,
			(union knob_value){.number = experts_of_node(question)});
	return with;
}

bool axes_resolve(
	const struct question *given, struct arena *arena, struct plan *plan, struct error *error)
{
	const struct question asked = with_expert_ranks(given), *question = &asked;
	struct question with = *question;
	struct error mine = {0};
	if (plan_resolve(question, arena, plan, error))
		return true;
	bool open = question_is_open(question, KNOB_EXPERT);
	question_put(&with, KNOB_EXPERT, (union knob_value){.number = 1});
	if (open && plan_resolve(&with, arena, plan, &mine))
		return true;
	if (resolve_divided(question, arena, plan))
		return true;
	with = *question;
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		for (int v = 0; v < question->only[knobs_of_axes[i]].n; v++) {
			question_put(&with, knobs_of_axes[i],
				question->only[knobs_of_axes[i]].values[v]);
			if (plan_resolve(&with, arena, plan, &mine))
				return true;
		}
	return false;
}

/* The more ranks divide the model, the fewer are data-parallel. */
int64_t mesh_fewest_data_parallel(const struct filling *f)
{
	int64_t ranks = plan_ranks(f->plan);
	for (int i = 0; i < KNOBS_OF_AXES; i++) {
		const struct knob_list *list = &f->question->only[knobs_of_axes[i]];
		const struct axis *axis = &f->axes->of[knobs_of_axes[i]];
		int64_t most = knob_get(knobs_of_axes[i], f->plan).number;
		for (int v = 0; v < list->n; v++)
			most = max_i64(most, list->values[v].number);
		for (int v = 0; v < axis->n; v++)
			most = max_i64(most, axis->values[v].number);
		ranks /= most;
	}
	return max_i64(ranks, 1);
}

void mesh_fill(struct filling *f)
{
	add_tensor(f);
	add_context(f);
	add_context_methods(f);
	add_stages(f);
	add_orders(f);
	add_virtual_stages(f);
	add_experts(f);
}
