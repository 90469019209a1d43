/* Pipelines as they are built: laws, parts, messages, and the work of all stages together. */
#include "schedule/pipeline/pipeline.h"
#include "schedule/resolve/resolve.h"
#include "support.h"
#include "tests/sampled.h"

/* --- random plans: laws --------------------------------------------------------------------------
 */

/* The plan over a pipeline, of a topology with as many more devices. */
static bool cut_plan(struct arena *arena, uint64_t *state, const struct model *model,
	struct topology **topology, struct plan *plan)
{
	struct topology *larger = ARENA_NEW(arena, struct topology);
	struct plan with = *plan;
	struct error error = {0};
	*larger = **topology;
	with.mesh.pipeline = 2 + random_below(state, 4);
	with.pipeline_schedule =
		(enum pipeline_schedule)random_below(state, PIPELINE_SCHEDULE_COUNT);
	with.virtual_stages =
		with.pipeline_schedule == PIPELINE_INTERLEAVED ? 2 + random_below(state, 3) : 0;
	with.sync_each_micro_batch = with.sync_each_micro_batch && with.virtual_stages == 0;
	if (pipeline_splits_backward(with.pipeline_schedule)) {
		with.sync_each_micro_batch = with.compile = false;
		with.activation_checkpointing = (struct rows){0};
		if (random_below(state, 4) == 0 && with.pipeline_schedule == PIPELINE_ZB_H1)
			with.virtual_stages = 2;
	}
	with.grad_accum = with.mesh.pipeline * (1 + random_below(state, 4));
	with.global_batch = with.micro_batch * with.grad_accum * plan_data_parallel(&with);
	larger->nodes *= with.mesh.pipeline;
	if (!plan_check(&with, model, larger, &error))
		return false;
	*plan = with;
	*topology = larger;
	return true;
}

static void test_random(void **state)
{
	enum { ROUNDS = SAMPLED(400), DRAWS = 24 };
	int cut = 0, schedules[PIPELINE_SCHEDULE_COUNT] = {0};
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		struct arena arena = {0};
		uint64_t seed = 577215664ull + (uint64_t)round * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan;
		bool is_cut = false;
		const struct schedule *schedule;
		for (int draw = 0; draw < DRAWS && !is_cut; draw++) {
			plan = deep_plan(&arena, &seed, model, topology);
			if (random_below(&seed, 3) == 0)
				divide_plan(&arena, &seed, model, &topology, &plan);
			is_cut = cut_plan(&arena, &seed, model, &topology, &plan);
		}
		if (is_cut) {
			cut++;
			schedules[plan.pipeline_schedule]++;
			schedule = build_random(&arena, round, &plan, model, topology);
			assert_int_equal(schedule->n_classes, plan.mesh.pipeline);
		}
		arena_finish(&arena);
	}
	print_message("%d of %d are cut into stages\n", cut, ROUNDS);
	assert_true(8 * cut > ROUNDS);
	for (int s = 0; s < PIPELINE_SCHEDULE_COUNT; s++)
		assert_true(SAMPLED_EACH > 1 || schedules[s] > 0);
}

/* --- what is built -------------------------------------------------------------------------------
 */

enum { SEQ_LEN = 2048 };

static struct schedule *built(struct arena *arena, const char *name, const char *words)
{
	return build_words(arena, name, "4xdgx-h100", words);
}

static const char *const cuts[] = {
	"pipeline=2 grad_accum=8",
	"pipeline=4 grad_accum=8",
	"pipeline=4 grad_accum=8 pipeline_schedule=gpipe",
	"pipeline=4 grad_accum=8 pipeline_schedule=interleaved",
	"pipeline=2 grad_accum=6 pipeline_schedule=interleaved virtual_stages=4",
	"pipeline=8 grad_accum=22 pipeline_schedule=interleaved virtual_stages=2",
	"pipeline=4 grad_accum=4 tensor=2",
	"pipeline=4 grad_accum=8 layers_per_stage=5,9,10,8",
	"pipeline=4 grad_accum=8 runtime=nanotron",
	"pipeline=4 grad_accum=8 runtime=shardplan strategy=FULL_SHARD",
	"pipeline=2 grad_accum=6 pipeline_schedule=interleaved runtime=shardplan tensor=2",
	"pipeline=4 grad_accum=8 pipeline_schedule=zb-h1",
	"pipeline=4 grad_accum=8 pipeline_schedule=zb-h1 virtual_stages=2 tensor=2",
	"pipeline=4 grad_accum=9 pipeline_schedule=zbv",
	"pipeline=2 grad_accum=1 pipeline_schedule=zbv layers_per_stage=0,16,16,0",
	"pipeline=4 grad_accum=8 pipeline_schedule=zbv tensor=2 context=2",
	"pipeline=4 grad_accum=9 pipeline_schedule=dualpipev",
	"pipeline=4 grad_accum=8 pipeline_schedule=zbv strategy=FULL_SHARD",
	/* the last stage has nothing that is resharded to a smaller group */
	"pipeline=2 grad_accum=8 strategy=FULL_SHARD reshard_after_forward=4 layers_per_stage=32,0",
};

/* The stages hold every parameter of the model once, in its order. */
static void test_parts(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "llama-2-7b", cuts[i]);
		const struct plan *plan = &schedule->plan;
		const struct pipeline pipeline = plan_pipeline(plan);
		const struct model *model = plan_model(plan, schedule->model, &arena);
		int64_t parameters = 0, blocks = 0;
		int *seen = ARENA_ARRAY(&arena, int, model->architecture.layers);
		for (int c = 0; c < schedule->n_classes; c++) {
			const struct model *part = schedule->programs[c].model;
			parameters += part->parameter_count;
			blocks += part->architecture.layers;
			for (int64_t l = 0; l < part->architecture.layers; l++)
				seen[model_layer(part, l)]++;
			for (int p = 0; p < part->n_parameters; p++)
				assert_true(part->modules[part->parameters[p].module].kind !=
						    MODULE_EMBEDDING ||
					    pipeline_stage(&pipeline, c, 0) == 0);
		}
		assert_int_equal(parameters, model->parameter_count);
		assert_int_equal(blocks, model->architecture.layers);
		for (int64_t l = 0; l < blocks; l++)
			assert_int_equal(seen[l], 1);
		arena_finish(&arena);
	}
}

/* Parameters that are read, over all operations of a kind: what is computed, weighed. */
static double work(const struct schedule *schedule, enum op_kind kind)
{
	double sum = 0;
	for (int c = 0; c < schedule->n_classes; c++) {
		const struct program *program = &schedule->programs[c];
		for (int i = 0; i < program->n_ops; i++) {
			const struct op *op = &program->ops[i];
			for (int m = op->first_module; op->kind == kind && m < op->end_module; m++)
				sum += 1 + (double)model_subtree_parameters(program->model, m);
		}
	}
	return sum;
}

static bool has_parts(const char *words)
{
	return strstr(words, "zb") != NULL || strstr(words, "dualpipev") != NULL;
}

/* Each leaf's backward is whole, or once in an input part and once in a weight part. */
static void test_work(void **state)
{
	static const struct {
		enum op_kind whole, part;
	} kinds[] = {
		{OP_FORWARD, OP_FORWARD},
		{OP_RECOMPUTE, OP_RECOMPUTE},
		{OP_LOSS, OP_LOSS},
		{OP_BACKWARD, OP_BACKWARD_INPUT},
		{OP_BACKWARD, OP_BACKWARD_WEIGHT},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		const char *checkpointing = has_parts(cuts[i]) ? "none" : "full";
		const struct schedule *schedule = built(&arena, "llama-2-7b",
			arena_printf(
				&arena, "%s activation_checkpointing=%s", cuts[i], checkpointing));
		const struct plan *plan = &schedule->plan;
		const struct schedule *whole = built(&arena, "llama-2-7b",
			arena_printf(&arena,
				"grad_accum=%lld tensor=%lld context=%lld runtime=%s "
				"activation_checkpointing=%s",
				(long long)plan->grad_accum, (long long)plan->mesh.tensor,
				(long long)plan->mesh.context, runtime_names[plan->runtime],
				checkpointing));
		for (int k = 0; k < COUNT_OF(kinds); k++) {
			double done = work(schedule, kinds[k].whole);
			if (kinds[k].part != kinds[k].whole)
				done += work(schedule, kinds[k].part);
			assert_true(done == work(whole, kinds[k].whole));
		}
		assert_true(has_parts(cuts[i]) == (work(schedule, OP_BACKWARD_WEIGHT) > 0));
		arena_finish(&arena);
	}
}

static bool are_on_one_rank(const struct pipeline *pipeline, int one, int two)
{
	int ranks[2], chunk;
	pipeline_place(pipeline, one, &ranks[0], &chunk);
	pipeline_place(pipeline, two, &ranks[1], &chunk);
	return ranks[0] == ranks[1];
}

static struct exchanged of_class(
	const struct schedule *schedule, int class, enum op_kind kind, enum group_kind group)
{
	struct schedule one = *schedule;
	one.programs = &schedule->programs[class];
	return exchanged(&one, kind, group);
}

/* Between each two stages that follow one another the residual stream of every micro-batch, and its
 * gradient back. At the turn of a V both are on one rank. */
static void test_messages(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "llama-2-7b",
			arena_printf(&arena, "%s seq_len=%d", cuts[i], SEQ_LEN));
		const struct plan *plan = &schedule->plan;
		const struct pipeline pipeline = plan_pipeline(plan);
		int64_t stages = pipeline.ranks * pipeline.chunks, n = 0, bytes = 0;
		int64_t hidden = schedule->model->architecture.hidden;
		for (int s = 1; s < pipeline.ranks * pipeline.chunks; s++)
			stages -= are_on_one_rank(&pipeline, s - 1, s);
		for (int c = 0; c < schedule->n_classes; c++) {
			const struct exchanged sent =
				of_class(schedule, c, OP_SEND, GROUP_PIPELINE);
			n += sent.n;
			bytes += sent.bytes;
		}
		assert_int_equal(n, 2 * (stages - 1) * plan->grad_accum);
		assert_int_equal(
			bytes, n * SEQ_LEN * hidden * 2 / plan->mesh.tensor / plan->mesh.context);
		arena_finish(&arena);
	}
}

/* Megatron-LM's scatter and gather: a tensor rank sends its part of each message, and what it
 * receives is gathered before it is computed with. */
static void test_parts_of_messages(void **state)
{
	static const char *const orders[] = {"pipeline=4 grad_accum=8",
		"pipeline=4 pipeline_schedule=interleaved virtual_stages=2 grad_accum=8",
		"pipeline=2 pipeline_schedule=gpipe grad_accum=3 activation_checkpointing=full"};
	(void)state;
	for (int i = 0; i < COUNT_OF(orders); i++) {
		struct arena arena = {0};
		const char *words = arena_printf(&arena,
			"%s tensor=4 sequence_parallel=off seq_len=%d runtime=megatron", orders[i],
			SEQ_LEN);
		const struct schedule *whole = built(&arena, "llama-2-7b", words);
		const struct schedule *parts = built(
			&arena, "llama-2-7b", arena_printf(&arena, "%s scatter_gather=on", words));
		for (int c = 0; c < parts->n_classes; c++) {
			struct exchanged sent = of_class(whole, c, OP_SEND, GROUP_PIPELINE);
			struct exchanged came = of_class(whole, c, OP_RECV, GROUP_PIPELINE);
			struct exchanged part = of_class(parts, c, OP_SEND, GROUP_PIPELINE);
			struct exchanged arrived = of_class(parts, c, OP_RECV, GROUP_PIPELINE);
			struct exchanged gathered = of_class(parts, c, OP_ALL_GATHER, GROUP_TENSOR);
			assert_int_equal(part.n, sent.n);
			assert_int_equal(part.bytes * 4, sent.bytes);
			assert_int_equal(arrived.n, came.n);
			assert_int_equal(arrived.bytes * 4, came.bytes);
			assert_int_equal(gathered.n, came.n);
			assert_int_equal(gathered.bytes, came.bytes);
		}
		arena_finish(&arena);
	}
}

/* --- what the host waits for ---------------------------------------------------------------------
 */

/* Counts the waits for messages. Behind messages that were issued one after the other the next
 * operation waits for each of them, and nothing else waits for a message. */
static int64_t waits_for_messages(const struct program *p)
{
	int64_t n = 0;
	for (int o = 0, first = 0; o < p->n_ops; o++) {
		const struct op *op = &p->ops[o];
		const int *waits = slice_of(p, op->host_waits);
		int here = 0;
		if (op_kind_class(op->kind) == OP_CLASS_MESSAGE) {
			assert_int_equal(op->host_waits.count, 0);
			continue;
		}
		for (int w = 0; w < op->host_waits.count; w++) {
			int on = waits[w];
			if (on < 0 || op_kind_class(p->ops[on].kind) != OP_CLASS_MESSAGE)
				continue;
			assert_in_range(on, first, o - 1);
			here++;
		}
		assert_true(here == 0 || here == o - first);
		n += here;
		first = o + 1;
	}
	return n;
}

/* Megatron-LM, InternEvo and nanotron synchronise the device behind what stages exchange, unless
 * interleaved stages overlap it (batch_p2p_sync, overlap_p2p_comm). */
static void test_host_waits(void **state)
{
	static const struct {
		const char *words;
		bool waits;
	} rows[] = {
		{"runtime=megatron", true},
		{"runtime=megatron pipeline_schedule=gpipe", true},
		{"runtime=megatron overlap=all strategy=ZERO_1", true},
		{"runtime=megatron tensor=4 sequence_parallel=off scatter_gather=on", true},
		{"runtime=megatron activation_checkpointing=full context=2", true},
		{"runtime=megatron pipeline_schedule=interleaved virtual_stages=2", false},
		{"runtime=internevo", true},
		{"runtime=nanotron", true},
		{"runtime=pytorch-fsdp2", false},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "llama-2-7b",
			arena_printf(&arena, "%s pipeline=4 grad_accum=8 seq_len=%d", rows[i].words,
				SEQ_LEN));
		for (int c = 0; c < schedule->n_classes; c++) {
			struct exchanged out = of_class(schedule, c, OP_SEND, GROUP_PIPELINE);
			struct exchanged in = of_class(schedule, c, OP_RECV, GROUP_PIPELINE);
			assert_int_equal(waits_for_messages(&schedule->programs[c]),
				rows[i].waits ? out.n + in.n : 0);
		}
		arena_finish(&arena);
	}
}

/* A tied table is on the first stage and on the last one, which add up its gradients: of ours each
 * rank its shard. */
static void test_table(void **state)
{
	static const char *const runtimes[] = {
		"megatron", "nanotron", "shardplan strategy=FULL_SHARD"};
	(void)state;
	for (int i = 0; i < COUNT_OF(runtimes); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "gpt2-355m",
			arena_printf(&arena, "pipeline=4 grad_accum=8 tensor=2 runtime=%s",
				runtimes[i]));
		int64_t hidden = schedule->model->architecture.hidden;
		int64_t parts = i == 2 ? plan_shard_ranks(&schedule->plan) : 1;
		assert_true(i < 2 || parts > 1);
		for (int c = 0; c < schedule->n_classes; c++) {
			const struct program *program = &schedule->programs[c];
			bool is_end = c == 0 || c == schedule->n_classes - 1;
			int n = 0;
			for (int o = 0; o < program->n_ops; o++) {
				const struct op *op = &program->ops[o];
				if (op->group < 0 ||
					schedule->groups[op->group].kind != GROUP_EMBEDDING)
					continue;
				n++;
				assert_int_equal(op->kind, OP_ALL_REDUCE);
				assert_int_equal(op->bytes * parts,
					program->model->architecture.vocab * hidden * 4);
			}
			assert_int_equal(n, is_end);
		}
		int64_t first = schedule->programs[0].model->parameters[0].elements;
		int64_t last =
			schedule->programs[3]
				.model->parameters[schedule->programs[3].model->n_parameters - 1]
				.elements;
		assert_int_equal(first, last);
		arena_finish(&arena);
	}
}

/* As many micro-batches hold their tensors at once as the order says. */
static int saved_of_first_blocks(const struct program *program, struct slice slice, int second)
{
	int n = 0;
	for (int i = 0; i < slice.count; i++) {
		const struct buffer *buffer = &program->buffers[slice_of(program, slice)[i]];
		n += buffer->role == BUFFER_ACTIVATIONS &&
		     (buffer->layer == 0 || buffer->layer == second);
	}
	return n;
}

/* Returns how many micro-batches are in flight at most, by the first block of each stage of the
 * rank; `second`: by that of the second stage. */
static int most_in_flight(const struct program *program, int second)
{
	int alive = 0, most = 0;
	for (int o = 0; o < program->n_ops; o++) {
		alive += saved_of_first_blocks(program, program->ops[o].takes, second);
		most = alive > most ? alive : most;
		alive -= saved_of_first_blocks(program, program->ops[o].gives, second);
	}
	return most;
}

static void test_in_flight(void **state)
{
	int compared = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "llama-2-7b", cuts[i]);
		const struct pipeline pipeline = plan_pipeline(&schedule->plan);
		for (int c = 0; c < schedule->n_classes; c++) {
			const struct program *program = &schedule->programs[c];
			struct pipeline_slot *slots;
			int n = pipeline_order(&pipeline, c, &arena, &slots);
			bool has_ranges = schedule->plan.mesh.tensor > 1; /* several a block */
			int stages[16];
			struct error error = {0};
			assert_true(plan_split(&schedule->plan, schedule->model, stages, &error));
			int first = stages[pipeline_stage(&pipeline, c, 0)];
			if (pipeline.chunks > 2 || has_ranges || first == 0 ||
				program->model->architecture.layers == 0)
				continue;
			assert_int_equal(
				most_in_flight(program, first), pipeline_in_flight(slots, n));
			compared++;
		}
		arena_finish(&arena);
	}
	assert_true(compared >= 10);
}

/* --- what torch's pipelines do with FSDP2's units
 * ---------------------------------------------------------------
 */

static int count_before(
	const struct program *program, enum op_kind kind, enum stream stream, int end)
{
	int n = 0;
	for (int i = 0; i < end; i++)
		n += program->ops[i].kind == kind && program->ops[i].stream == stream;
	return n;
}

static int first_of(const struct program *program, enum op_kind kind)
{
	int i = 0;
	while (i < program->n_ops && program->ops[i].kind != kind)
		i++;
	return i;
}

static int last_of(const struct program *program, enum op_kind kind)
{
	int i = program->n_ops - 1;
	while (i >= 0 && program->ops[i].kind != kind)
		i--;
	return i;
}

/* Gradients are reduced behind the last backward, and behind its message: the stage before does not
 * wait for them. DDP reduces during it. */
static void test_reductions_come_behind(void **state)
{
	(void)state;
	struct arena arena = {0};
	const struct schedule *schedule =
		built(&arena, "llama-2-7b", "pipeline=4 grad_accum=8 strategy=SHARD_GRAD_OP");
	for (int c = 0; c < schedule->n_classes; c++) {
		const struct program *program = &schedule->programs[c];
		int backward = last_of(program, OP_BACKWARD), sent = last_of(program, OP_SEND);
		int behind = c > 0 ? sent : backward;
		assert_int_equal(
			count_before(program, OP_REDUCE_SCATTER, STREAM_REDUCE, behind), 0);
		assert_true(count_before(
				    program, OP_REDUCE_SCATTER, STREAM_REDUCE, program->n_ops) > 0);
		assert_true(c == 0 || sent > backward);
	}
	schedule = built(&arena, "llama-2-7b", "pipeline=4 grad_accum=8 runtime=pytorch-ddp");
	const struct program *ddp = &schedule->programs[0];
	assert_true(count_before(ddp, OP_ALL_REDUCE, STREAM_REDUCE, last_of(ddp, OP_BACKWARD)) > 0);
	arena_finish(&arena);
}

static int taken_by(const struct program *program, enum op_kind kind, enum buffer_role role)
{
	int n = 0;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *takes = slice_of(program, op->takes);
		for (int t = 0; t < op->takes.count && op->kind == kind; t++)
			n += program->buffers[takes[t]].role == role;
	}
	return n;
}

/* Our backward adds to the gradient that has come and sends it on: only the last stage makes one.
 * Work for a block lies beside it. */
static void test_ours_sends_on_what_came(void **state)
{
	enum { STAGES = 4, MICRO_BATCHES = 8 };
	(void)state;
	struct arena arena = {0};
	const struct schedule *schedule =
		built(&arena, "llama-2-7b", "pipeline=4 grad_accum=8 runtime=shardplan");
	for (int c = 0; c < STAGES; c++) {
		const struct program *program = &schedule->programs[c];
		assert_int_equal(taken_by(program, OP_BACKWARD, BUFFER_RESIDUAL_GRADIENT),
			c == STAGES - 1 ? MICRO_BATCHES : 0);
		assert_int_equal(taken_by(program, OP_RECV, BUFFER_RESIDUAL_GRADIENT),
			c == STAGES - 1 ? 0 : MICRO_BATCHES);
		assert_int_equal(
			taken_by(program, OP_BACKWARD, BUFFER_BACKWARD_WORK), MICRO_BATCHES);
	}
	arena_finish(&arena);
}

/* Units of the three stages that a rank computes next are gathered before it waits for a message;
 * with four of them each is gathered again when its turn comes. */
static void test_stages_are_gathered_ahead(void **state)
{
	static const struct {
		const char *words;
		int ahead, again; /* of 8 blocks a rank, before the first message, and in all */
	} rows[] = {{"pipeline=4 grad_accum=8 pipeline_schedule=interleaved "
		     "layers_per_stage=4,4,4,4,4,4,4,4",
			    8, 8},
		{"pipeline=4 grad_accum=8 pipeline_schedule=interleaved virtual_stages=4 "
		 "layers_per_stage=2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2",
			6, 10},
		{"pipeline=4 grad_accum=8 layers_per_stage=8,8,8,8", 0, 8}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = built(&arena, "llama-2-7b", rows[i].words);
		const struct program *program = &schedule->programs[1];
		int message = first_of(program, OP_RECV);
		int ahead = count_before(program, OP_ALL_GATHER, STREAM_GATHER, message);
		int all = count_before(program, OP_ALL_GATHER, STREAM_GATHER, program->n_ops);
		assert_int_equal(ahead, rows[i].ahead);
		if (rows[i].again > 8)
			assert_true(all >= rows[i].again);
		else
			assert_int_equal(all, rows[i].again);
		arena_finish(&arena);
	}
}

/* Only the last stage has a head that is a unit of its own; the others have blocks alone, and the
 * first the embedding. */
static void test_ends_are_units_of_their_stages(void **state)
{
	(void)state;
	struct arena arena = {0};
	const struct schedule *schedule =
		built(&arena, "llama-2-7b", "pipeline=4 grad_accum=4 wrap=block+embedding+head");
	for (int c = 0; c < schedule->n_classes; c++) {
		const struct program *program = &schedule->programs[c];
		int ends = c == 0 || c == schedule->n_classes - 1;
		assert_int_equal(program->n_units, 1 + program->model->architecture.layers + ends);
	}
	arena_finish(&arena);
}

/* What ours has summed over tensor ranks is added before it is sent: with the head nothing is. */
static void test_ours_adds_sums_at_the_end(void **state)
{
	struct arena arena = {0};
	const struct schedule *s =
		built(&arena, "llama-2-7b", "pipeline=4 grad_accum=8 runtime=shardplan tensor=2");
	(void)state;
	for (int c = 0; c < s->n_classes; c++) {
		const struct program *p = &s->programs[c];
		int added = 0;
		for (int i = 0; i < p->n_ops; i++)
			added += p->ops[i].kind == OP_ADD_SUM && p->ops[i + 1].kind == OP_SEND;
		assert_int_equal(added, c < s->n_classes - 1 ? 8 : 0);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_work),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_parts_of_messages),
		cmocka_unit_test(test_host_waits),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_in_flight),
		cmocka_unit_test(test_reductions_come_behind),
		cmocka_unit_test(test_ours_sends_on_what_came),
		cmocka_unit_test(test_ours_adds_sums_at_the_end),
		cmocka_unit_test(test_stages_are_gathered_ahead),
		cmocka_unit_test(test_ends_are_units_of_their_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
