/* A folded schedule, executed, equals the list of schedule_emit in every operation, byte and wait;
 * printed, it has the same text. */
#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"
#include "support.h"

/* Where a folded list is carried out: iteration i of the inner loop, j of the outer one. */
struct carrying {
	const struct schedule *folded, *full;
	int *inner, *outer;            /* per folded operation: the loop round it, -1 */
	int *taken_by, *taken_in_full; /* per buffer: the operation that takes it, -1 */
	int n;                         /* operations so far */
	const char *wrong;
	int wrong_op;
};

static const struct loop *loop_at(const struct carrying *c, int loop)
{
	return loop >= 0 ? &c->folded->programs->loops[loop] : NULL;
}

static int64_t bytes_of(const struct program *program, struct slice slice)
{
	int64_t total = 0;
	for (int i = 0; i < slice.count; i++)
		total += program->buffers[slice_of(program, slice)[i]].bytes;
	return total;
}

static int compare_ints(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

/* Where what operation `op`, the n-th of the full list, gives back was taken. */
static int *taken_in_full(const struct carrying *c, int op)
{
	const struct program *program = c->full->programs;
	struct slice gives = program->ops[op].gives;
	int *places = calloc((size_t)gives.count + 1, sizeof(int));
	for (int i = 0; i < gives.count; i++) {
		int taker = c->taken_in_full[slice_of(program, gives)[i]];
		places[i] = taker > op ? taker - program->n_ops : taker;
	}
	qsort(places, (size_t)gives.count, sizeof(int), compare_ints);
	return places;
}

/* Does a folded operation give back the same as the one of the full list? One of no block gives
 * back for all of them. */
static bool gives_the_same(const struct carrying *c, int op, int i, int j)
{
	const struct program *program = c->folded->programs;
	struct slice gives = program->ops[op].gives;
	int most = c->full->programs->ops[c->n].gives.count, n = 0;
	int64_t bytes = 0;
	int *places = calloc((size_t)most + 1, sizeof(int)), *full = taken_in_full(c, c->n);
	for (int k = gives.first; k < gives.first + gives.count; k++) {
		const struct position *place = &program->places[k];
		int buffer = program->indices[k], taker = c->taken_by[buffer];
		int times = buffers_at_once(program, &program->ops[op], buffer);
		const struct loop *loop = loop_at(c, c->inner[taker]);
		bytes += times * program->buffers[buffer].bytes;
		for (int t = 0; t < times && n < most; t++)
			places[n++] = place->first + i * place->inner + j * place->outer +
				      t * (loop != NULL ? loop->n : 0);
	}
	qsort(places, (size_t)n, sizeof(int), compare_ints);
	bool same = n == most && memcmp(places, full, (size_t)n * sizeof(int)) == 0 &&
		    bytes == bytes_of(c->full->programs, c->full->programs->ops[c->n].gives);
	free(places);
	free(full);
	return same;
}

/* The operation has the layer of the first of those that the loop goes over. */
static bool is_same_layer(const struct carrying *c, const struct op *op, const struct op *full,
	int i, const struct loop *loop)
{
	const struct module *modules = c->full->model->modules;
	int by = full->layer - op->layer, layers = 0;
	if (op->layer < 0)
		return full->layer < 0 && op->first_module == full->first_module &&
		       op->end_module == full->end_module;
	if (loop != NULL)
		layers = loop->layers > 0 ? i * loop->layers : (i + 1 - loop->times) * loop->layers;
	if (op->end_module == 0 && full->end_module == 0)
		return by == layers; /* copies beside the block */
	if (by != layers ||
		op->end_module - op->first_module != full->end_module - full->first_module)
		return false;
	return modules[op->first_module].kind == modules[full->first_module].kind &&
	       modules[full->first_module].layer == full->layer &&
	       (by != 0 || op->first_module == full->first_module);
}

static bool are_same_waits(
	const struct carrying *c, struct slice folded, struct slice full, int i, int j)
{
	const struct position *places = c->folded->programs->places + folded.first;
	const int *waits = slice_of(c->full->programs, full);
	if (folded.count != full.count)
		return false;
	for (int w = 0; w < folded.count; w++)
		if (places[w].first + i * places[w].inner + j * places[w].outer != waits[w])
			return false;
	return true;
}

/* The unit of the step's list that the folded one's stands for, or one that is alike: a gather may
 * be of the block behind. */
static bool is_same_unit(const struct carrying *c, int folded, int full)
{
	if (folded < 0 || full < 0)
		return folded == full;
	const struct unit *a = &c->folded->programs->units[folded],
			  *b = &c->full->programs->units[full];
	return a->chunk == b->chunk && a->gathered == b->gathered &&
	       a->parameters == b->parameters &&
	       a->end_module - a->module == b->end_module - b->module && a->offload == b->offload &&
	       a->reshard_group == b->reshard_group;
}

static const char *difference(const struct carrying *c, int x, int i, int j)
{
	const struct op *op = &c->folded->programs->ops[x];
	if (c->n >= c->full->programs->n_ops)
		return "too long";
	const struct op *full = &c->full->programs->ops[c->n];
	const struct loop *inner = loop_at(c, c->inner[x]);
	if (op->kind != full->kind || op->stream != full->stream || op->group != full->group)
		return "operation";
	if (op->bytes != full->bytes || op->dtype != full->dtype)
		return "bytes";
	if (op->micro_batch + j != full->micro_batch)
		return "micro-batch";
	if (!is_same_layer(c, op, full, i, inner))
		return "layer";
	if (!is_same_unit(c, op->unit, full->unit) || !is_same_unit(c, op->cause, full->cause))
		return "unit";
	if (!are_same_waits(c, op->waits, full->waits, i, j))
		return "waits";
	if (!are_same_waits(c, op->host_waits, full->host_waits, i, j))
		return "waits of the host";
	if (bytes_of(c->folded->programs, op->takes) != bytes_of(c->full->programs, full->takes))
		return "bytes taken";
	if (!gives_the_same(c, x, i, j))
		return "what is given back";
	return NULL;
}

static void carry_out_op(struct carrying *c, int x, int i, int j)
{
	if (c->wrong != NULL)
		return;
	c->wrong = difference(c, x, i, j);
	c->wrong_op = x;
	c->n += c->wrong == NULL;
}

/* [first, end), of which loops from `loop` on are inside. */
static void carry_out_blocks(struct carrying *c, int first, int end, int j)
{
	for (int x = first; x < end && c->wrong == NULL;) {
		const struct loop *inner = loop_at(c, c->inner[x]);
		int n = inner != NULL ? inner->n : 1, times = inner != NULL ? inner->times : 1;
		for (int i = 0; i < times; i++)
			for (int k = 0; k < n; k++)
				carry_out_op(c, x + k, i, j);
		x += n;
	}
}

static int *takers_of(struct arena *arena, const struct program *program)
{
	int *takers = ARENA_ARRAY(arena, int, program->n_buffers);
	for (int b = 0; b < program->n_buffers; b++)
		takers[b] = -1;
	for (int x = 0; x < program->n_ops; x++)
		for (int t = 0; t < program->ops[x].takes.count; t++)
			takers[slice_of(program, program->ops[x].takes)[t]] = x;
	return takers;
}

static void find_loops(struct carrying *c, struct arena *arena)
{
	const struct program *program = c->folded->programs;
	c->inner = ARENA_ARRAY(arena, int, program->n_ops);
	c->outer = ARENA_ARRAY(arena, int, program->n_ops);
	c->taken_by = takers_of(arena, program);
	c->taken_in_full = takers_of(arena, c->full->programs);
	for (int x = 0; x < program->n_ops; x++)
		c->inner[x] = c->outer[x] = -1;
	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];
		bool is_outer = loop->layers == 0;
		for (int x = loop->first; x < loop->first + loop->n; x++)
			(is_outer ? c->outer : c->inner)[x] = l;
	}
}

static const char *carry_out(struct carrying *c, struct arena *arena)
{
	const struct program *program = c->folded->programs;
	find_loops(c, arena);
	for (int x = 0; x < program->n_ops && c->wrong == NULL;) {
		const struct loop *outer = loop_at(c, c->outer[x]);
		int n = outer != NULL ? outer->n : 1;
		if (outer == NULL && c->inner[x] >= 0)
			n = loop_at(c, c->inner[x])->n;
		for (int j = 0; j < (outer != NULL ? outer->times : 1); j++)
			carry_out_blocks(c, x, x + n, j);
		x += n;
	}
	if (c->wrong == NULL && c->n != c->full->programs->n_ops)
		c->wrong = "too short";
	if (c->wrong == NULL && c->n != program->n_carried_out)
		c->wrong = "length";
	return c->wrong;
}

/* --- random plans --------------------------------------------------------------------------------
 */

static const char *compare(struct carrying *c, struct arena *arena)
{
	const char *wrong = c->folded->programs->n_loops > 0 ? carry_out(c, arena) : NULL;
	for (int role = 0; role < BUFFER_ROLE_COUNT && wrong == NULL; role++)
		if (resident_bytes_of(c->folded, role) != resident_bytes_of(c->full, role))
			wrong = "memory between steps";
	return wrong;
}

static struct carrying both(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology)
{
	return (struct carrying){.folded = schedule_fold(arena, plan, model, topology),
		.full = schedule_emit(arena, plan, model, topology)};
}

/* How many plans there were, how many of them have loops over blocks and over micro-batches, and
 * how many of those with loops can be printed. */
struct counts {
	int plans, blocks, micro_batches, loops, printed;
};

static void count(
	struct counts *counts, const struct schedule *folded, const struct schedule *printable)
{
	bool blocks = false, micro_batches = false;
	for (int l = 0; l < folded->programs->n_loops; l++) {
		bool outer = folded->programs->loops[l].layers == 0;
		blocks = blocks || !outer;
		micro_batches = micro_batches || outer;
	}
	counts->plans++;
	counts->blocks += blocks;
	counts->micro_batches += micro_batches;
	counts->loops += blocks || micro_batches;
	counts->printed += printable->programs->n_loops > 0;
}

static void fail_plan(const struct carrying *c, const char *wrong, int seed)
{
	const struct plan *plan = &c->full->plan;
	struct text text = {0};
	plan_summary(plan, &text);
	fail_msg("plan %d: %s at %d (%s), %d layers, %d micro-batches, %s: %s", seed, wrong,
		c->wrong_op, op_kind_name(c->folded->programs->ops[c->wrong_op].kind),
		(int)c->full->model->architecture.layers, (int)plan->grad_accum,
		runtime_names[plan->runtime], text_string(&text));
}

/* Where two texts part: the line of the first. */
static const char *parting(const struct text *one, const struct text *two, struct text *line)
{
	const char *a = text_string(one), *b = text_string(two);
	size_t at = 0, first = 0;
	while (a[at] != '\0' && a[at] == b[at])
		if (a[at++] == '\n')
			first = at;
	text_printf(line, "text: %.*s, expected %.*s", (int)strcspn(a + first, "\n"), a + first,
		(int)strcspn(b + first, "\n"), b + first);
	return text_string(line);
}

static void check_text(const struct carrying *c, const struct schedule *printable, int seed)
{
	struct text folded = {0}, full = {0}, line = {0};
	schedule_print(printable, &folded);
	schedule_print(c->full, &full);
	if (strcmp(text_string(&folded), text_string(&full)) != 0)
		fail_plan(c, parting(&folded, &full, &line), seed);
	assert_string_equal(schedule_digest(printable).hex, digest_of(full.data, full.length).hex);
	text_finish(&folded);
	text_finish(&full);
}

static void check(const struct plan *plan, const struct model *model,
	const struct topology *topology, int seed, struct counts *counts)
{
	struct arena arena = {0};
	struct carrying c = both(&arena, plan, model, topology);
	const char *wrong = compare(&c, &arena);
	if (wrong != NULL)
		fail_plan(&c, wrong, seed);
	struct schedule *printable = schedule_fold_printable(&arena, plan, model, topology);
	check_text(&c, printable, seed);
	count(counts, c.folded, printable);
	arena_finish(&arena);
}

/* Per cent of the plans that must have loops over blocks, and over micro-batches: half of them are
 * of one or two micro-batches, a quarter of fewer blocks than stay. Buckets and traces cut blocks
 * differently. */
static const struct {
	int blocks, micro_batches;
} floors[RUNTIME_COUNT] = {
	[RUNTIME_PYTORCH_FSDP1] = {60, 25},
	[RUNTIME_PYTORCH_FSDP2] = {68, 42},
	[RUNTIME_PYTORCH_DDP] = {0, 30},
	[RUNTIME_SHARDPLAN] = {63, 42},
	[RUNTIME_DEEPSPEED] = {0, 25},
	[RUNTIME_NANOTRON] = {0, 35},
	[RUNTIME_INTERNEVO] = {0, 35},
	[RUNTIME_MEGATRON] = {0, 30},
};

enum { ENOUGH = 20 }; /* plans of a runtime for a share */

static int n_plans = 200;

static void test_random(void **state)
{
	struct counts counts[RUNTIME_COUNT] = {{0}};
	(void)state;
	for (int i = 0; i < n_plans; i++) {
		struct arena arena = {0};
		uint64_t seed = 88172645463325252ull + (uint64_t)i * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan = deep_plan(&arena, &seed, model, topology);
		check(&plan, model, topology, i, &counts[plan.runtime]);
		arena_finish(&arena);
	}
	for (int r = 0; r < RUNTIME_COUNT; r++) {
		const struct counts *of = &counts[r];
		print_message("%-14s %4d plans, %4d fold blocks, %4d micro-batches; %4d of %4d "
			      "are printed folded\n",
			runtime_names[r], of->plans, of->blocks, of->micro_batches, of->printed,
			of->loops);
	}
	for (int r = 0; r < RUNTIME_COUNT; r++) {
		const struct counts *of = &counts[r];
		if (of->plans < ENOUGH)
			continue;
		assert_true(100 * of->blocks >= floors[r].blocks * of->plans);
		assert_true(100 * of->micro_batches >= floors[r].micro_batches * of->plans);
		assert_true(100 * of->printed >= 99 * of->loops);
	}
}

/* Counts, for 7B on two nodes, how many of the plans fold their blocks, or their micro-batches. */
static struct counts check_all(const char *const *words, int n)
{
	struct arena arena = {0};
	const struct model *model = preset_model(&arena, "llama-2-7b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	struct counts counts = {0};
	for (int i = 0; i < n; i++) {
		struct plan plan = plan_of_words(&arena, model, topology, words[i]);
		check(&plan, model, topology, i, &counts);
	}
	arena_finish(&arena);
	return counts;
}

/* Copies in fp8, and those that live between steps. */
static void test_fp8(void **state)
{
	static const char *const words[] = {"fp8=tensorwise grad_accum=6",
		"fp8=rowwise compile=on activation_checkpointing=full",
		"fp8=delayed runtime=megatron grad_accum=9 tensor=2",
		"fp8=tensorwise compile=on fp8_param_gather=on grad_accum=3"};
	struct counts counts = check_all(words, COUNT_OF(words));
	(void)state;
	assert_true(counts.blocks + counts.micro_batches > 0);
}

/* A block of multi-token prediction behind the others. */
static void test_prediction(void **state)
{
	static const char *const words[] = {"runtime=megatron grad_accum=6",
		"runtime=megatron grad_accum=5 tensor=2 activation_checkpointing=full",
		"runtime=megatron expert=8 grad_accum=9 activation_checkpointing=selective "
		"recompute_modules=layernorm+moe_act",
		"runtime=megatron expert=8 grad_accum=4 expert_overlap=on"};
	static const char *const names[] = {
		"llama-2-7b", "llama-2-7b", "mixtral-8x7b", "mixtral-8x7b"};
	struct counts counts = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct model *model = preset_model(&arena, names[i]);
		const struct topology *topology = cluster(&arena, "2xdgx-h100");
		assert_true(model_predict_next(&arena, model, 1 + i % 2, &model, &error));
		struct plan plan = plan_of_words(&arena, model, topology, words[i]);
		check(&plan, model, topology, i, &counts);
		arena_finish(&arena);
	}
	assert_true(counts.micro_batches > 0);
}

/* Copies to the host end two blocks behind: of the first ones of a run, in blocks that are none. */
static void test_copies(void **state)
{
	static const char *const words[] = {
		"runtime=shardplan context=2 context_method=all-to-all wrap=model strategy=ZERO_2 "
		"activation_offload=all "
		"activation_checkpointing=2xselective+4xfull+1xselective+1xnone+"
		"1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+"
		"1xnone+"
		"1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+1xnone+1xfull+"
		"1xnone"};
	(void)state;
	assert_int_equal(check_all(words, COUNT_OF(words)).blocks, COUNT_OF(words));
}

/* Frozen blocks have no backward: what a micro-batch reshards is there for the next one. The second
 * uses what the first took, among accumulators that only the first takes. */
static void test_left_for_next(void **state)
{
	struct arena arena = {0};
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	const struct model *model = preset_model(&arena, "llama-2-7b");
	const char *words = "runtime=pytorch-fsdp2 reshard_after_forward=4 grad_accum=9 "
			    "sync_each_micro_batch=off";
	struct plan plan = {0};
	struct counts counts = {0};
	struct error error;
	struct model *trained;
	(void)state;
	assert_true(fields_set(&knob_table[KNOB_TRAINABLE].field, "trainable", "lm_head*,norm*",
		&plan, &arena, &error));
	assert_true(model_train(&arena, model, &plan.trainable, &trained, &error));
	plan = plan_of_words(&arena, trained, topology, words);
	check(&plan, trained, topology, 0, &counts);
	assert_int_equal(counts.micro_batches, 1);
	arena_finish(&arena);
}

/* Ranks of a tensor group add up what they have alike: leaf by leaf, behind all blocks of a unit.
 */
static void test_shared_leaves(void **state)
{
	static const char *const words[] = {"runtime=shardplan tensor=2 wrap=model grad_accum=6",
		"runtime=shardplan tensor=2 wrap=block", "runtime=shardplan tensor=2 wrap=blocks:3",
		"runtime=shardplan tensor=2 wrap=size:500000000 strategy=ZERO_1",
		"runtime=shardplan tensor=2 wrap=model strategy=NO_SHARD sequence_parallel=off",
		"runtime=shardplan tensor=2 pipeline=2 grad_accum=9"};
	(void)state;
	assert_true(check_all(words, COUNT_OF(words)).blocks >= 3);
}

/* --- damage --------------------------------------------------------------------------------------
 */

static struct plan plan_of_7b(
	struct arena *arena, const struct model *model, const struct topology *topology)
{
	return plan_of_words(arena, model, topology, "runtime=pytorch-fsdp1 grad_accum=9");
}

/* What is spoiled is noticed: a place, a wait too few, bytes, how often a loop is carried out. */
static void test_damage(void **state)
{
	struct arena arena = {0};
	const struct model *model = preset_model(&arena, "llama-2-7b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	struct plan plan = plan_of_7b(&arena, model, topology);
	(void)state;
	for (int damage = 0; damage < 6; damage++) {
		struct carrying c = both(&arena, &plan, model, topology);
		struct program *program = c.folded->programs;
		struct op *op = &program->ops[program->loops[program->n_loops - 1].first];
		while (op->waits.count == 0)
			op++;
		switch (damage) {
		case 1:
			program->places[op->waits.first].first++;
			break;
		case 2:
			program->places[op->waits.first].inner--;
			break;
		case 3:
			op->waits.count--;
			break;
		case 4:
			op->bytes++;
			break;
		case 5:
			program->loops[0].times--;
			break;
		}
		assert_int_equal(compare(&c, &arena) == NULL, damage == 0);
	}
	arena_finish(&arena);
}

/* Every law of the unfolding counts: one that is spoiled changes the digest. */
static void test_damaged_unfolding(void **state)
{
	struct arena arena = {0};
	const struct model *model = preset_model(&arena, "llama-2-7b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	struct plan plan = plan_of_7b(&arena, model, topology);
	struct schedule *schedule = schedule_fold_printable(&arena, &plan, model, topology);
	struct program *program = schedule->programs;
	struct unfolding *unfolding = program->unfolding;
	const struct loop *loop = program->loops;
	while (loop->outer < 0)
		loop++;
	struct listed *listed = &unfolding->ops[loop->first];
	const struct digest whole = schedule_digest(schedule);
	(void)state;
	while (listed->uses.count == 0 || listed->names.layer.first < 0)
		listed++;
	assert_in_range(listed - unfolding->ops, loop->first, loop->first + loop->n - 1);
	struct position *used = &unfolding->numbers[listed->uses.first];
	int *const spoiled[] = {&listed->names.unit.by, &listed->names.layer.first,
		&listed->names.module.by, &used->first, &used->inner, &used->outer,
		&unfolding->buffers[0].unit.first, &program->loops[0].times};
	for (int i = 0; i < COUNT_OF(spoiled); i++) {
		++*spoiled[i];
		assert_string_not_equal(schedule_digest(schedule).hex, whole.hex);
		--*spoiled[i];
	}
	assert_string_equal(schedule_digest(schedule).hex, whole.hex);
	arena_finish(&arena);
}

/* What the simulation of large models gains by: how many operations are left of them. */
static void test_lengths(void **state)
{
	static const struct {
		const char *words;
		int most;
	} cases[] = {
		{"runtime=pytorch-fsdp2", 61},
		{"runtime=pytorch-fsdp1", 85},
		{"runtime=shardplan", 82},
		{"runtime=shardplan strategy=ZERO_2", 47},
		{"runtime=pytorch-fsdp2 grad_accum=32", 229},
		{"runtime=pytorch-fsdp1 grad_accum=32", 253},
		{"runtime=pytorch-fsdp2 wrap=model", 21},
		{"strategy=HYBRID_SHARD late_all_reduce=on grad_accum=32", 313},
	};
	struct arena arena = {0};
	const struct model *model = preset_model(&arena, "llama-3-405b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct plan plan = plan_of_words(&arena, model, topology, cases[i].words);
		struct schedule *folded = schedule_fold(&arena, &plan, model, topology);
		print_message("%-36s %6d operations folded to %d\n", cases[i].words,
			folded->programs->n_carried_out, folded->programs->n_ops);
		assert_in_range(folded->programs->n_ops, 1, cases[i].most);
	}
	arena_finish(&arena);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
		cmocka_unit_test(test_copies), cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_prediction), cmocka_unit_test(test_left_for_next),
		cmocka_unit_test(test_shared_leaves), cmocka_unit_test(test_damage),
		cmocka_unit_test(test_damaged_unfolding), cmocka_unit_test(test_lengths)};
	if (argc > 2)
		n_plans = atoi(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
