#include "support.h"
#include "schedule/resolve/resolve.h"

int64_t random_below(uint64_t *state, int64_t limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (int64_t)(*state >> 11) % limit;
}

struct model *preset_model(struct arena *arena, const char *name)
{
	struct error error = {0};
	struct model *model = NULL;
	if (!model_load_preset(arena, name, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

struct topology *cluster(struct arena *arena, const char *name)
{
	struct error error = {0};
	struct topology *topology = NULL;
	if (!topology_load_name(arena, name, &topology, &error))
		fail_msg("%s", error.message);
	return topology;
}

struct topology *gpu_cluster(struct arena *arena, int64_t nodes, int64_t devices)
{
	struct topology *topology = cluster(arena, "dgx-a100-80gb");
	topology->nodes = nodes;
	topology->devices_per_node = devices;
	return topology;
}

struct topology *cpu_machine(struct arena *arena, int64_t ranks)
{
	struct topology *topology = gpu_cluster(arena, 1, ranks);
	topology->name = "local";
	topology->device = (struct device){.name = "CPU",
		.kind = DEVICE_CPU,
		.generation = GENERATION_CPU,
		.memory_bytes = 16LL << 30,
		.memory_bandwidth = 2e10,
		.fp32_flops = 1e11,
		.multiprocessors = 1};
	topology->fabric = (struct fabric){FABRIC_SHARED_MEMORY, 1e10, 1e-6, 0};
	topology->network = (struct network){.kind = NETWORK_NONE};
	topology->shares_host = true;
	return topology;
}

/* --- models --------------------------------------------------------------------------------------
 */

static int open_module(struct model *model, enum module_kind kind, const char *name, int parent)
{
	int index = model->n_modules++;
	model->modules[index] = (struct module){.name = name,
		.kind = kind,
		.parent = parent,
		.layer = parent >= 0 ? model->modules[parent].layer : -1,
		.end = index + 1,
		.first_parameter = model->n_parameters,
		.tied_parameter = -1,
		.adapter = -1};
	for (int i = parent; i >= 0; i = model->modules[i].parent)
		model->modules[i].end = index + 1;
	return index;
}

static void add_square(struct model *model, const char *name, int module, int64_t width)
{
	model->parameters[model->n_parameters++] = (struct parameter){.name = name,
		.module = module,
		.n_dims = 2,
		.shape = {width, width},
		.elements = width * width,
		.trainable = true};
	model->modules[module].n_parameters++;
	model->parameter_count += width * width;
	model->trained_count = model->parameter_count;
}

struct model *equal_model(struct arena *arena, int blocks)
{
	enum { D = 512 };
	struct model *model = ARENA_NEW(arena, struct model);
	model->arena = arena;
	model->modules = ARENA_ARRAY(arena, struct module, 4 + 3 * blocks);
	model->parameters = ARENA_ARRAY(arena, struct parameter, 2 + 2 * blocks);
	model->architecture = (struct architecture){.name = "equal",
		.layers = blocks,
		.hidden = D,
		.heads = 1,
		.kv_heads = 1,
		.head_dim = D,
		.ffn = D,
		.vocab = D,
		.context = 64};
	open_module(model, MODULE_MODEL, "", -1);
	add_square(model, "i.weight", open_module(model, MODULE_EMBEDDING, "i", 0), D);
	int layers = open_module(model, MODULE_LAYERS, "layers", 0);
	for (int i = 0; i < blocks; i++) {
		int block = open_module(
			model, MODULE_BLOCK, arena_printf(arena, "layers.%d", i), layers);
		model->modules[block].layer = i;
		add_square(model, "a.weight",
			open_module(model, MODULE_UP, arena_printf(arena, "layers.%d.a", i), block),
			D);
		add_square(model, "b.weight",
			open_module(
				model, MODULE_DOWN, arena_printf(arena, "layers.%d.b", i), block),
			D);
	}
	add_square(model, "head.weight", open_module(model, MODULE_HEAD, "head", 0), D);
	return model;
}

static struct architecture random_architecture(uint64_t *state)
{
	int64_t heads = 1LL << random_below(state, 3), head_dim = 2 * (1 + random_below(state, 4));
	bool llama = random_below(state, 2);
	bool even = random_below(state, 3) > 0; /* sizes that divide, as real models have */
	return (struct architecture){.name = "random",
		.family = llama ? FAMILY_LLAMA : FAMILY_GPT2,
		.layers = 1 + random_below(state, 4),
		.hidden = heads * head_dim,
		.heads = heads,
		.kv_heads = llama && random_below(state, 2) ? 1 : heads,
		.head_dim = head_dim,
		.ffn = even ? 32 : 7 + random_below(state, 30),
		.vocab = even ? 64 : 5 + random_below(state, 60),
		.context = 32,
		.positions = llama ? POSITIONS_ROPE : POSITIONS_LEARNED,
		.norm = llama ? NORM_RMSNORM : NORM_LAYERNORM,
		.norm_bias = !llama && random_below(state, 2),
		.mlp = llama ? MLP_SWIGLU : MLP_GELU,
		.qkv_bias = random_below(state, 2),
		.output_bias = random_below(state, 2),
		.mlp_bias = random_below(state, 2),
		.fused_qkv = !llama,
		.qk_norm = llama && random_below(state, 2),
		.tied_head = random_below(state, 2),
		.norm_epsilon = 1e-5,
		.rope_theta = 10000};
}

struct model *random_model(struct arena *arena, uint64_t *state)
{
	struct error error = {0};
	struct model *model = NULL;
	struct architecture architecture = random_architecture(state);
	if (!architecture_check(&architecture, NULL, &error) ||
		!model_build(arena, &architecture, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

struct model *partly_trained(struct arena *arena, uint64_t *state, struct model *model)
{
	static const char *const texts[] = {"lora:2", "lora:3:all-linear:alpha=5", "*norm*,*ln_*",
		"*bias*", "*.2.*,*.3.*", "lm_head*,*ln_f*", "*.mlp.*"};
	struct model *trained;
	struct error error = {0};
	if (random_below(state, 2))
		return model;
	const char *text = texts[random_below(state, COUNT_OF(texts))];
	struct plan plan = {0};
	if (!fields_set(&knob_table[KNOB_TRAINABLE].field, "trainable", text, &plan, arena, &error))
		fail_msg("%s", error.message);
	return model_train(arena, model, &plan.trainable, &trained, &error) ? trained : model;
}

struct topology *random_topology(struct arena *arena, uint64_t *state)
{
	int64_t devices = 1 + random_below(state, 8);
	if (random_below(state, 4) == 0)
		return cpu_machine(arena, devices);
	return gpu_cluster(arena, 1 + random_below(state, 4), devices);
}

/* --- plans ---------------------------------------------------------------------------------------
 */

static const struct {
	const char *name;
	const char *values[9];
} knobs[] = {
	{"runtime", {"pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "shardplan", "deepspeed",
			    "nanotron", "internevo", "megatron", NULL}},
	{"strategy", {"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD",
			     "HYBRID_SHARD_ZERO2", "ZERO_1", "ZERO_2", "ZERO_3", NULL}},
	{"reshard_after_forward", {"true", "false", "2", "4", NULL}},
	{"wrap", {"block", "blocks:2", "blocks:3", "size:60", "size:300", "model",
			 "block+embedding+head", NULL}},
	{"prefetch", {"none", "pre", "post", NULL}},
	{"forward_prefetch", {"on", "off", NULL}},
	{"limit_all_gathers", {"on", "off", NULL}},
	{"activation_checkpointing", {"none", "selective", "full", NULL}},
	{"attention", {"flash", "eager", NULL}},
	{"param_dtype", {"fp32", "bf16", "fp16", NULL}},
	{"master_dtype", {"fp32", "fp32", "bf16", NULL}},
	{"reduce_dtype", {"fp32", "bf16", NULL}},
	{"optimizer", {"adamw-fused", "adamw-foreach", "adamw", "sgd", NULL}},
	{"micro_batch", {"1", "2", NULL}},
	{"grad_accum", {"1", "1", "2", "3", NULL}},
	{"sync_each_micro_batch", {"on", "off", NULL}},
	{"clip", {"0", "1", NULL}},
	{"cpu_offload", {"none", "optimizer", "parameters", "all", NULL}},
	{"seq_len", {"3", "16", NULL}},
	{"shard_group", {"1", "2", "4", NULL}},
	{"overlap", {"all", "all", "gradients", "none", NULL}},
	{"dropout", {"off", "off", "on", NULL}},
};

static void draw_knob(int knob, struct question *question, struct arena *arena, uint64_t *state)
{
	struct error error = {0};
	int n = 0;
	while (knobs[knob].values[n] != NULL)
		n++;
	const char *value = knobs[knob].values[random_below(state, n)];
	if (!question_set_by_name(
		    question, knobs[knob].name, knobs[knob].name, value, arena, &error))
		fail_msg("%s", error.message);
}

struct mix mix_of(
	struct arena *arena, const struct plan *plan, int64_t blocks, int64_t units, bool root)
{
	struct mix mix = {.blocks = blocks, .units = units, .root = root};
	mix.checkpointing = ARENA_ARRAY(arena, enum checkpointing, blocks);
	mix.offload = ARENA_ARRAY(arena, enum offload, units);
	mix.reshard = ARENA_ARRAY(arena, int64_t, units);
	for (int64_t i = 0; i < units; i++) {
		mix.offload[i] = plan_offload_at(plan, i);
		mix.reshard[i] = plan_reshard_group_at(plan, i);
	}
	return mix;
}

struct plan mix_plan(struct arena *arena, uint64_t *state, const struct mix *mix, struct plan plan,
	const struct model *model, const struct topology *topology)
{
	struct error error = {0};
	struct plan with = plan;
	if (random_below(state, 2))
		with.activation_checkpointing =
			rows_make_checkpointing(arena, mix->checkpointing, mix->blocks);
	if (random_below(state, 2) && mix->units > 0)
		with.cpu_offload = rows_make_offload(arena, mix->offload, mix->units);
	if (random_below(state, 2) && mix->units - mix->root > 0)
		with.reshard_after_forward =
			rows_make_reshard(arena, mix->reshard, mix->units - mix->root);
	return plan_check(&with, model, topology, &error) ? with : plan;
}

/* Gives blocks and units values of their own. */
static struct plan mixed(struct arena *arena, uint64_t *state, struct plan plan,
	const struct model *model, const struct topology *topology)
{
	bool root;
	int64_t units = plan_units(&plan, model, &root), blocks = model->architecture.layers;
	struct mix mix = mix_of(arena, &plan, blocks, units, root);
	for (int64_t i = 0; i < blocks; i++)
		mix.checkpointing[i] = (enum checkpointing)random_below(state, 3);
	for (int64_t i = 0; i < units; i++) {
		if (!random_below(state, 2))
			mix.offload[i] = OFFLOAD_NONE;
		if (!random_below(state, 2))
			mix.reshard[i] = 0;
	}
	return mix_plan(arena, state, &mix, plan, model, topology);
}

/* Where the plan allows it. */
static struct plan with_activations(uint64_t *state, struct plan plan, const struct model *model,
	const struct topology *topology)
{
	struct error error = {0};
	struct plan with = plan;
	with.activation_offload = (enum activation_offload)random_below(state, 3);
	return plan_check(&with, model, topology, &error) ? with : plan;
}

/* Where the plan names modules that are computed again. */
static struct plan with_modules(struct arena *arena, uint64_t *state, struct plan plan,
	const struct model *model, const struct topology *topology)
{
	struct error error = {0};
	struct plan with = plan;
	unsigned of = 0;
	for (int m = 0; m < RECOMPUTE_MODULE_COUNT; m++)
		if (random_below(state, 2) &&
			model_has_recompute_module(model, (enum recompute_module)m))
			of |= 1u << m;
	with.recompute_modules = recompute_modules_of(of, arena);
	plan_normalise(&with, arena);
	return plan_check(&with, model, topology, &error) ? with : plan;
}

/* Where the plan may have CUDA graphs. */
static struct plan with_graphs(struct arena *arena, uint64_t *state, struct plan plan,
	const struct model *model, const struct topology *topology)
{
	struct error error = {0};
	struct plan with = plan;
	if (plan.runtime != RUNTIME_MEGATRON)
		return plan;
	unsigned of = (unsigned)random_below(state, 1 << GRAPH_SCOPE_COUNT);
	with.cuda_graph_scope = graph_scopes_of(of, arena);
	return plan_check(&with, model, topology, &error) ? with : plan;
}

struct plan random_plan(struct arena *arena, uint64_t *state, const struct model *model,
	const struct topology *topology)
{
	for (int round = 0; round < 1000000; round++) {
		struct question question = {.model = model, .topology = topology};
		struct error error = {0};
		struct plan plan;
		for (int k = 0; k < COUNT_OF(knobs); k++)
			if (k < 2 || random_below(state, 2))
				draw_knob(k, &question, arena, state);
		if (plan_resolve(&question, arena, &plan, &error)) {
			plan = random_below(state, 4) ? plan
						      : mixed(arena, state, plan, model, topology);
			plan = with_activations(state, plan, model, topology);
			plan = with_modules(arena, state, plan, model, topology);
			return with_graphs(arena, state, plan, model, topology);
		}
		assert_int_equal(error.code, EXIT_CODE_USAGE);
	}
	fail_msg("no plan in a million draws");
	return (struct plan){0};
}

struct sample random_sample(struct arena *arena, uint64_t *state)
{
	struct sample sample = {
		.model = random_model(arena, state), .topology = random_topology(arena, state)};
	sample.plan = random_plan(arena, state, sample.model, sample.topology);
	sample.schedule = toy_schedule(arena, &sample.plan, sample.model, sample.topology);
	return sample;
}

bool try_plan(struct arena *arena, const struct model *model, const struct topology *topology,
	struct plan *plan, struct error *error, ...)
{
	struct question question = {.model = model, .topology = topology};
	va_list args;
	bool ok = true;
	va_start(args, error);
	for (const char *word; ok && (word = va_arg(args, const char *)) != NULL;) {
		char *name = arena_strdup(arena, word);
		char *value = strchr(name, '=');
		assert_non_null(value);
		*value++ = '\0';
		const char *where = arena_printf(arena, "--%s", name);
		for (char *c = strchr(where, '_'); c != NULL; c = strchr(c, '_'))
			*c = '-';
		ok = question_set_by_name(&question, name, where, value, arena, error);
	}
	va_end(args);
	return ok && plan_resolve(&question, arena, plan, error);
}

/* --- counting ------------------------------------------------------------------------------------
 */

int count_ops(const struct schedule *schedule, enum op_kind kind, int phase)
{
	const struct program *program = &schedule->programs[0];
	int count = 0, micro_batch = -1;
	bool backward = false;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->micro_batch != micro_batch)
			backward = false;
		micro_batch = op->micro_batch;
		backward = backward || op->kind == OP_LOSS;
		count += op->kind == kind && (phase < 0 || backward == (phase == 1));
	}
	return count;
}

int count_group(const struct schedule *schedule, enum op_kind kind, enum group_kind group)
{
	return (int)exchanged(schedule, kind, group).n;
}

bool try_words(struct arena *arena, const struct model *model, const struct topology *topology,
	const char *words, struct plan *plan, struct error *error)
{
	char *copy = arena_strdup(arena, words), *word[10] = {0};
	int n = 0;
	*error = (struct error){0};
	for (char *next = strtok(copy, " "); next != NULL && n < 9; next = strtok(NULL, " "))
		word[n++] = next;
	return try_plan(arena, model, topology, plan, error, word[0], word[1], word[2], word[3],
		word[4], word[5], word[6], word[7], word[8], NULL);
}

struct plan plan_of_words(struct arena *arena, const struct model *model,
	const struct topology *topology, const char *words)
{
	struct plan plan;
	struct error error;
	if (!try_words(arena, model, topology, words, &plan, &error))
		fail_msg("%s: %s", words, error.message);
	return plan;
}

struct schedule *build_random(struct arena *arena, int round, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	struct schedule *schedule;
	struct error error = {0};
	struct text text = {0};
	if (schedule_build(arena, plan, model, topology, &schedule, &error))
		return schedule;
	plan_summary(plan, &text);
	fail_msg("round %d: %s: %s", round, text_string(&text), error.message);
	return NULL;
}

struct schedule *build_words(
	struct arena *arena, const char *model_name, const char *cluster_name, const char *words)
{
	struct model *model = preset_model(arena, model_name);
	struct topology *topology = cluster(arena, cluster_name);
	struct plan plan = plan_of_words(arena, model, topology, words);
	struct schedule *schedule;
	struct error error = {0};
	if (!schedule_build(arena, &plan, model, topology, &schedule, &error))
		fail_msg("%s: %s", words, error.message);
	return schedule;
}

struct exchanged exchanged(
	const struct schedule *schedule, enum op_kind kind, enum group_kind group)
{
	const struct program *program = &schedule->programs[0];
	struct exchanged all = {0, 0};
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->kind != kind || op->group < 0 || schedule->groups[op->group].kind != group)
			continue;
		all.n++;
		all.bytes += op->bytes;
	}
	return all;
}

int64_t resident_bytes_of(const struct schedule *schedule, enum buffer_role role)
{
	int64_t total = 0;
	for (int b = 0; b < schedule->programs->n_buffers; b++) {
		const struct buffer *buffer = &schedule->programs->buffers[b];
		if (buffer->resident && buffer->role == role)
			total += buffer->bytes * buffer_times(buffer);
	}
	return total;
}
