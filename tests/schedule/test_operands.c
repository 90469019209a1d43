/* What each operation reads and writes, in the order that docs/schedule.md promises to
 * interpreters: every operation of random schedules, all runtimes. */
#include <regex.h>

#include "schedule/memory/memory.h"
#include "support.h"

/* One letter a role, so that a list of operands is a word and a promise a regular expression. */
static const char letters[BUFFER_ROLE_COUNT] = {
	[BUFFER_PARAMETER_SHARD] = 'P',
	[BUFFER_LOW_PRECISION_SHARD] = 'L',
	[BUFFER_STAGED_SHARD] = 'H',
	[BUFFER_MASTER_SHARD] = 'M',
	[BUFFER_UNSHARDED] = 'U',
	[BUFFER_RESHARDED] = 'R',
	[BUFFER_COMPUTE_COPY] = 'C',
	[BUFFER_GATHERED] = 'G',
	[BUFFER_GRADIENT] = 'g',
	[BUFFER_FLAT_GRADIENT] = 'F',
	[BUFFER_GRADIENT_SHARD] = 'S',
	[BUFFER_OPTIMIZER_STATE] = 'O',
	[BUFFER_REDUCE_INPUT] = 'I',
	[BUFFER_REDUCE_OUTPUT] = 'o',
	[BUFFER_RESIDUAL] = 'r',
	[BUFFER_RESIDUAL_GRADIENT] = 'd',
	[BUFFER_OUTPUT_GRADIENTS] = 'y',
	[BUFFER_ACTIVATIONS] = 'A',
	[BUFFER_RECOMPUTED] = 'E',
	[BUFFER_FORWARD_WORK] = 'W',
	[BUFFER_BACKWARD_WORK] = 'B',
	[BUFFER_LOGITS] = 'l',
	[BUFFER_LOSS_WORK] = 'w',
	[BUFFER_KERNEL_WORKSPACE] = 'K',
	[BUFFER_OPTIMIZER_WORK] = 'Z',
	[BUFFER_TOKENS] = 't',
	[BUFFER_NORM_SCALARS] = 'n',
	[BUFFER_BUCKET] = 'b',
};

static const struct buffer *operand(const struct program *p, const struct op *op, int i)
{
	return &p->buffers[slice_of(p, op->uses)[i]];
}

static void word_of(const struct program *p, const struct op *op, struct text *word)
{
	text_clear(word);
	for (int i = 0; i < op->uses.count; i++)
		text_add_char(word, letters[operand(p, op, i)->role]);
}

static bool matches(const char *pattern, const char *word)
{
	regex_t regex;
	assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
	bool ok = regexec(&regex, word, 0, NULL, 0) == 0;
	regfree(&regex);
	return ok;
}

/* --- fixed lists ---------------------------------------------------------------------------------
 */

static const struct {
	enum op_kind kind;
	const char *pattern;
} fixed[] = {
	{OP_CAST_PARAMETERS, "^(PL|HL|PC|PCL+|P+C|H+C|L+G|(PL)+)$"},
	{OP_ALL_GATHER, "^([PLHR][UG]|C|G)$"},
	{OP_COPY_OUT, "^GU$"},
	{OP_RESHARD, "^(U|C|R|UR)$"},
	{OP_LOSS, "^ltw?$"},
	{OP_FLATTEN_GRADIENTS, "^g+FF?$"},
	{OP_CAST_GRADIENTS, "^(F|F[IS]|g+I|S+I|g+b|bg*I|g+Ig|bI)$"},
	{OP_REDUCE_SCATTER, "^[gFI][oS]$|^Io+$|^g$"},
	{OP_ALL_REDUCE, "^[gFIoSn]$"},
	{OP_ACCUMULATE_GRADIENTS, "^([ogFI]S|S|gg+|IS+|(oS)+)$"},
	{OP_END_BACKWARD, "^(g*b?)$"},
	{OP_GRADIENT_NORM, "^(S+|g+)n$"},
	{OP_CLIP_GRADIENTS, "^n(S+|g+)$"},
	{OP_OPTIMIZER, "^(PO?[Sg]|MO?SL?)+Z?n?$|^(PO?)+S+Z?n?$"},
	{OP_COPY_H2D, "^(PH|MP|MH|LP|rr|AA)$"},
	{OP_COPY_D2H, "^(S[So]|rr|AA)$"},
	{OP_END_COPIES, "^$"},
};

/* --- compute -------------------------------------------------------------------------------------
 */

static int64_t range_parameters(const struct model *model, const struct op *op)
{
	int64_t total = 0;
	for (int p = 0; p < model->n_parameters; p++)
		if (model->parameters[p].module >= op->first_module &&
			model->parameters[p].module < op->end_module)
			total += model->parameters[p].elements;
	return total;
}

static bool last_of_block(const struct model *model, const struct op *op)
{
	for (int m = op->end_module; m < model->n_modules; m++)
		if (module_kind_is_leaf(model->modules[m].kind))
			return model->modules[m].layer != op->layer;
	return true;
}

static enum module_kind last_kind(const struct model *model, const struct op *op)
{
	return model->modules[op->end_module - 1].kind;
}

static bool is_embedding(const struct model *model, const struct op *op)
{
	enum module_kind kind = last_kind(model, op);
	return kind == MODULE_EMBEDDING || kind == MODULE_POSITION_EMBEDDING;
}

/* Does it read weights? Under DDP it names what it reads; a unit names itself as a whole. */
static bool reads_weights(const struct sample *s, const struct op *op)
{
	if (op->unit >= 0)
		return s->schedule->programs->units[op->unit].parameters > 0;
	bool tied = s->model->architecture.tied_head && last_kind(s->model, op) == MODULE_HEAD;
	return tied || range_parameters(s->model, op) > 0;
}

static bool is_selective(const struct sample *s, const struct op *op)
{
	return op->layer >= 0 &&
	       plan_block_checkpointing(&s->plan, op->layer) == CHECKPOINTING_SELECTIVE;
}

/* What it drops and what it keeps are two buffers, and a range may have only one of them. */
static int64_t saves(const struct sample *s, const struct op *op)
{
	struct activation_rules rules =
		plan_activation_rules(&s->plan, s->topology->device.generation);
	rules.drop_attention = is_selective(s, op);
	return model_saved_bytes(s->model, op->first_module, op->end_module, &rules,
		s->plan.micro_batch, s->plan.seq_len);
}

static const char *compute_pattern(struct arena *arena, const struct sample *s, const struct op *op)
{
	bool embedding = is_embedding(s->model, op), head = last_kind(s->model, op) == MODULE_HEAD;
	bool gpu = s->topology->device.kind == DEVICE_GPU;
	const char *weights = reads_weights(s, op) ? "[UCP]+" : "";
	const char *workspace = gpu || s->plan.runtime == RUNTIME_SHARDPLAN ? "K" : "";
	const char *saved = saves(s, op) > 0 ? "+" : "*";
	if (op->kind == OP_FORWARD)
		return arena_printf(arena, "^%s%s[AW]%s%s%s%s$", weights, embedding ? "t" : "r",
			saved,
			embedding || (op->layer >= 0 && last_of_block(s->model, op)) ? "r" : "",
			head ? "l" : "", workspace);
	bool selective = is_selective(s, op);
	if (op->kind == OP_RECOMPUTE && selective)
		return arena_printf(arena, "^[UCP]*r[AE]*%s$", workspace);
	if (op->kind == OP_RECOMPUTE)
		return arena_printf(arena, "^%srE%s%s$", weights, saved, workspace);
	const char *gradients =
		reads_weights(s, op) && s->plan.runtime == RUNTIME_SHARDPLAN ? "[gS]" : "[gS]*";
	const char *work = s->plan.runtime == RUNTIME_SHARDPLAN ? "B" : "b?BB?";
	return arena_printf(arena, "^%s%s[AE]%s%s%s%s%s$", weights, embedding ? "t" : "r", saved,
		gradients, work, head ? "l" : "", workspace);
}

/* The residual stream: block l reads buffer l and its last range writes l + 1; the head reads L. */
static void check_residuals(const struct sample *s, const struct program *p, const struct op *op)
{
	int64_t slot = op->layer >= 0               ? op->layer
		       : is_embedding(s->model, op) ? -1
						    : s->model->architecture.layers;
	int seen = 0;
	for (int i = 0; i < op->uses.count; i++)
		if (operand(p, op, i)->role == BUFFER_RESIDUAL) {
			bool writes = op->kind == OP_FORWARD && (seen == 1 || slot < 0);
			assert_int_equal(operand(p, op, i)->layer, slot + writes);
			seen++;
		}
}

/* Ranges of the operation's slot, up to its own, that save anything. */
static int saving_ranges(const struct sample *s, const struct program *p, const struct op *op)
{
	int n = 0;
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *range = &p->ops[i];
		n += range->kind == OP_FORWARD && range->micro_batch == op->micro_batch &&
		     range->layer == op->layer && range->first_module <= op->first_module &&
		     is_embedding(s->model, range) == is_embedding(s->model, op) &&
		     saves(s, range) > 0;
	}
	return n;
}

/* Its own saved tensors first, then those of all earlier ranges of its block. */
static void check_saved(const struct sample *s, const struct program *p, const struct op *op)
{
	int previous = -1, n = 0;
	for (int i = 0; i < op->uses.count; i++) {
		const struct buffer *buffer = operand(p, op, i);
		if (buffer->role != BUFFER_ACTIVATIONS && buffer->role != BUFFER_RECOMPUTED &&
			buffer->role != BUFFER_FORWARD_WORK)
			continue;
		assert_int_equal(buffer->layer, op->layer);
		n++;
		if (previous < 0 && buffer->first_module >= op->first_module) {
			assert_int_equal(buffer->first_module, op->first_module);
			continue;
		}
		assert_true(buffer->end_module <= op->first_module);
		assert_true(buffer->first_module > previous);
		previous = buffer->first_module;
	}
	assert_int_equal(n, saving_ranges(s, p, op));
}

/* DDP's head reads a tied weight from the bucket where it lies, or the range's copy. */
static void check_tied(const struct sample *s, const struct program *p, const struct op *op)
{
	int tied = s->model->modules[op->end_module - 1].tied_parameter;
	bool found = tied < 0 || op->unit >= 0;
	for (int i = 0; i < op->uses.count && !found; i++) {
		const struct buffer *buffer = operand(p, op, i);
		found = buffer->role == BUFFER_COMPUTE_COPY;
		if (buffer->role != BUFFER_PARAMETER_SHARD)
			continue;
		const struct unit *bucket = &s->schedule->programs->units[buffer->unit];
		for (int k = 0; k < bucket->n_slices; k++)
			found = found || bucket->slices[k].parameter == tied;
	}
	assert_true(found);
}

/* The first operation after all micro-batches: norm or optimizer. */
static int step_part(const struct program *p)
{
	int i = p->n_ops;
	while (i > 0 && p->ops[i - 1].micro_batch < 0)
		i--;
	/* nothing else belongs to the step */
	assert_true(p->ops[i].kind == OP_GRADIENT_NORM || p->ops[i].kind == OP_OPTIMIZER);
	return i;
}

static void check_operands(struct arena *arena, const struct sample *s, int *seen)
{
	const struct program *p = &s->schedule->programs[0];
	struct text word = {0};
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		const char *pattern = NULL;
		for (int k = 0; k < COUNT_OF(fixed); k++)
			if (fixed[k].kind == op->kind)
				pattern = fixed[k].pattern;
		if (pattern == NULL) {
			pattern = compute_pattern(arena, s, op);
			check_residuals(s, p, op);
			if (!is_selective(s, op))
				check_saved(s, p, op);
			check_tied(s, p, op);
		} else {
			bool beside = op->kind == OP_CAST_PARAMETERS || op->kind == OP_COPY_H2D ||
				      op->kind == OP_COPY_D2H || op->kind == OP_END_COPIES;
			assert_int_equal(op->layer, beside && op->unit < 0 ? op->layer : -1);
		}
		word_of(p, op, &word);
		if (!matches(pattern, text_string(&word)))
			fail_msg("%s: op %d %s (%s) uses %s, expected %s",
				runtime_names[s->plan.runtime], i, op_kind_name(op->kind),
				op->unit >= 0 ? s->schedule->programs->units[op->unit].name : "-",
				text_string(&word), pattern);
		bool whole = op->kind == OP_GRADIENT_NORM || op->kind == OP_CLIP_GRADIENTS ||
			     op->kind == OP_LOSS || op->kind == OP_END_BACKWARD;
		assert_true(!whole || op->unit == -1);
		assert_int_equal(op->micro_batch == -1, i >= step_part(p));
		seen[op->kind]++;
	}
	text_finish(&word);
}

static void test_operands(void **state)
{
	(void)state;
	uint64_t seed = 1789;
	int seen[OP_KIND_COUNT] = {0};
	for (int round = 0; round < 400; round++) {
		struct arena arena = {0};
		struct sample sample = random_sample(&arena, &seed);
		check_operands(&arena, &sample, seen);
		arena_finish(&arena);
	}
	for (int k = 0; k < COUNT_OF(fixed); k++)
		assert_in_range(seen[fixed[k].kind], 20, 1000000);
}

/* --- a backward in two parts ---------------------------------------------------------------------
 */

/* The operation that took the only output gradients that another one uses. */
static const struct op *input_part(const struct program *p, const struct op *op)
{
	int buffer = op_buffer(p, op, BUFFER_OUTPUT_GRADIENTS);
	assert_true(buffer >= 0);
	for (int i = 0; i < p->n_ops; i++)
		for (int k = 0; k < p->ops[i].takes.count; k++)
			if (slice_of(p, p->ops[i].takes)[k] == buffer)
				return &p->ops[i];
	fail_msg("nobody takes buffer %d", buffer);
	return NULL;
}

/* What torch.distributed.pipelining._backward of 2.15.0 was seen to keep of a block like Llama's:
 * four gradients as wide as the residual stream, those of q, k and v, and two of the MLP's width.
 */
static int64_t output_gradients(const struct plan *plan, const struct architecture *a)
{
	int64_t heads = (a->heads + 2 * a->kv_heads) * a->head_dim;
	return plan->micro_batch * plan->seq_len * 2 * (4 * a->hidden + heads + 2 * a->ffn);
}

static void check_part(const struct schedule *s, const struct program *p, const struct op *op)
{
	bool is_input = op->kind == OP_BACKWARD_INPUT;
	const char *pattern = is_input ? "^[UCP]+rA+yd?B?l?Kd?$" : "^rA+yg+l?K$";
	struct text word = {0};
	word_of(p, op, &word);
	if (!matches(pattern, text_string(&word)))
		fail_msg("%s uses %s, expected %s", op_kind_name(op->kind), text_string(&word),
			pattern);
	text_finish(&word);
	const struct op *input = input_part(p, op);
	assert_int_equal(input->kind, OP_BACKWARD_INPUT);
	assert_int_equal(input->micro_batch, op->micro_batch);
	assert_int_equal(input->first_module, op->first_module);
	assert_int_equal(input->end_module, op->end_module);
	if (op->layer >= 0)
		assert_int_equal(p->buffers[op_buffer(p, op, BUFFER_OUTPUT_GRADIENTS)].bytes,
			output_gradients(&s->plan, &s->model->architecture));
}

static void test_parts(void **state)
{
	static const char *const cuts[] = {"zb-h1", "zbv", "dualpipev"};
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = build_words(&arena, "llama-3-8b", "2xdgx-h100",
			arena_printf(
				&arena, "pipeline=4 grad_accum=8 pipeline_schedule=%s", cuts[i]));
		int n = 0;
		for (int c = 0; c < schedule->n_classes; c++) {
			const struct program *p = &schedule->programs[c];
			for (int o = 0; o < p->n_ops; o++) {
				if (p->ops[o].kind != OP_BACKWARD_INPUT &&
					p->ops[o].kind != OP_BACKWARD_WEIGHT)
					continue;
				check_part(schedule, p, &p->ops[o]);
				n++;
			}
		}
		assert_true(n >= 100);
		arena_finish(&arena);
	}
}

/* --- what shardplan's executor is promised
 * --------------------------------------------------------
 */

/* recompute stops before DOWN, whose output nobody needs; PyTorch's runs the whole block. */
static void test_recompute_end(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"runtime=shardplan", "runtime=pytorch-fsdp1"};
	for (int r = 0; r < 2; r++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, "llama-nano");
		struct topology *topology = gpu_cluster(&arena, 1, 2);
		struct plan plan = toy_plan(&arena, model, topology, runtimes[r],
			"activation_checkpointing=full", NULL);
		struct schedule *schedule = toy_schedule(&arena, &plan, model, topology);
		const struct program *p = &schedule->programs[0];
		for (int i = 0; i < p->n_ops; i++)
			if (p->ops[i].kind == OP_RECOMPUTE)
				assert_int_equal(last_kind(model, &p->ops[i]),
					r == 0 ? MODULE_ACTIVATION : MODULE_DOWN);
		assert_int_equal(count_ops(schedule, OP_RECOMPUTE, -1), 6);
		arena_finish(&arena);
	}
}

/* Bytes that blocks save. */
static int64_t saved_in_blocks(const struct schedule *schedule)
{
	const struct program *p = &schedule->programs[0];
	int64_t saved = 0;
	for (int i = 0; i < p->n_buffers; i++)
		if (p->buffers[i].role == BUFFER_ACTIVATIONS && p->buffers[i].layer >= 0)
			saved += p->buffers[i].bytes;
	return saved;
}

/* Selective: of the products q, k, v, o, gate, up, down every second one is computed again, and
 * what lies between them. Kept: four results and attention's, 26.81 GiB more than full
 * checkpointing for 8 sequences of 2048 tokens of Llama-2-7B; torchtitan measured 26.77 (FSDP1)
 * and 26.81 (FSDP2). */
static void test_selective(void **state)
{
	(void)state;
	static const char *const again[] = {"first norm", "k", "o, second norm", "up, activation"};
	static const char *const words[] = {"selective", "full"};
	struct arena arena = {0};
	struct ledger ledger[2];
	struct schedule *schedules[2];
	for (int full = 0; full < 2; full++) {
		schedules[full] = build_words(&arena, "llama-2-7b", "dgx-h100",
			arena_printf(&arena,
				"runtime=pytorch-fsdp1 seq_len=2048 micro_batch=8 "
				"activation_checkpointing=%s",
				words[full]));
		schedule_ledger(schedules[full], 0, &arena, &ledger[full]);
	}
	const struct program *p = &schedules[0]->programs[0];
	assert_int_equal(count_ops(schedules[0], OP_RECOMPUTE, -1), 32 * COUNT_OF(again));
	for (int i = 0; i < p->n_ops; i++)
		for (int m = p->ops[i].first_module;
			p->ops[i].kind == OP_RECOMPUTE && m < p->ops[i].end_module; m++) {
			enum module_kind kind = schedules[0]->model->modules[m].kind;
			assert_true(kind != MODULE_QUERY && kind != MODULE_VALUE &&
				    kind != MODULE_ATTENTION_CORE && kind != MODULE_GATE &&
				    kind != MODULE_DOWN);
		}
	const int64_t T = 8 * 2048, h = 4096, f = 11008;
	int64_t more = ledger[0].live[ledger[0].peak_op][CATEGORY_ACTIVATIONS] -
		       ledger[1].live[ledger[1].peak_op][CATEGORY_ACTIVATIONS];
	assert_int_equal(schedules[0]->programs[0].ops[ledger[0].peak_op].kind, OP_LOSS);
	assert_int_equal(more, 32 * (2 * T * (4 * h + f) + 4 * 32 * T));
	assert_true(more > 26.76 * 0x1p30 && more < 26.82 * 0x1p30);
	arena_finish(&arena);
}

/* Backward does not read the result of DOWN: eager PyTorch keeps it all the same, torch.compile
 * does not (a block of 4 h, f and the softmax's statistics becomes 3 h). */
static void test_selective_compiled(void **state)
{
	(void)state;
	struct arena arena = {0};
	const int64_t T = 8 * 2048, h = 4096, f = 11008;
	for (int compiled = 0; compiled < 2; compiled++) {
		const char *words = arena_printf(&arena,
			"runtime=pytorch-fsdp2 seq_len=2048 micro_batch=8 "
			"activation_checkpointing=selective compile=%s",
			compiled ? "on" : "off");
		assert_int_equal(
			saved_in_blocks(build_words(&arena, "llama-2-7b", "dgx-h100", words)),
			32 * (2 * T * ((4 - compiled) * h + f) + 4 * 32 * T));
	}
	arena_finish(&arena);
}

/* The product of DOWN is kept before tensor ranks sum it up, so of all tokens; the others have a
 * part of the width (torch 2.15 and torchtitan 0.3.0: bench/torch/memory.py). */
static void test_selective_tensor(void **state)
{
	(void)state;
	struct arena arena = {0};
	const int64_t T = 8 * 2048, h = 4096, f = 11008, t = 4;
	const char *words = "runtime=pytorch-fsdp2 seq_len=2048 micro_batch=8 tensor=4 "
			    "activation_checkpointing=selective";
	assert_int_equal(saved_in_blocks(build_words(&arena, "llama-2-7b", "dgx-h100", words)),
		32 * (2 * T * ((3 * h + f) / t + h) + 4 * 32 / t * T));
	arena_finish(&arena);
}

/* With eager attention the probabilities go too, and nothing of a block is left but its input; a
 * projection with a bias is not kept. */
static void test_selective_variants(void **state)
{
	(void)state;
	static const char *const attention[] = {"attention=eager", "attention=flash"};
	struct arena arena = {0};
	struct topology *topology = gpu_cluster(&arena, 1, 2);
	struct model *model = preset_model(&arena, "gpt2-nano");
	const struct architecture *a = &model->architecture;
	for (int flash = 0; flash < 2; flash++) {
		struct plan plan = toy_plan(&arena, model, topology, "runtime=pytorch-fsdp1",
			attention[flash], "activation_checkpointing=selective", NULL);
		int64_t T = plan.micro_batch * plan.seq_len;
		assert_int_equal(saved_in_blocks(toy_schedule(&arena, &plan, model, topology)),
			flash * a->layers * T * (2 * a->hidden + 4 * a->heads));
	}
	arena_finish(&arena);
}

/* Live bytes at the loss, by category. */
static const int64_t *at_loss(struct arena *arena, const struct schedule *schedule)
{
	const struct program *p = &schedule->programs[0];
	struct ledger ledger;
	schedule_ledger(schedule, 0, arena, &ledger);
	for (int i = 0; i < p->n_ops; i++)
		if (p->ops[i].kind == OP_LOSS)
			return ledger.live[i];
	fail_msg("no loss");
	return NULL;
}

/* Llama-2-7B, 4096 tokens, bf16, flash: PyTorch saves 629.7 MB a block, the block's input among it,
 * and 14 bytes a logit at the loss; full checkpointing keeps the inputs. */
static void test_activation_bytes(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"runtime=pytorch-fsdp1", "runtime=pytorch-fsdp2",
		"runtime=pytorch-ddp strategy=NO_SHARD"};
	static const char *const checkpointings[] = {"none", "full"};
	const int64_t T = 4096, h = 4096, f = 11008, V = 32000, L = 32;
	const int64_t input = 2 * T * h, block = T * h * 16 + 8 * T * f + 8 * T + 4 * 32 * T;
	assert_int_equal(block, 629702656);
	for (int r = 0; r < 3; r++)
		for (int c = 0; c < 2; c++) {
			struct arena arena = {0};
			const int64_t *live = at_loss(&arena,
				build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb",
					arena_printf(&arena, "%s activation_checkpointing=%s",
						runtimes[r], checkpointings[c])));
			/* the final norm: its input, its output, its statistics */
			assert_int_equal(live[CATEGORY_ACTIVATIONS],
				L * (c == 0 ? block : input) + 2 * input + 4 * T);
			assert_int_equal(live[CATEGORY_TEMPORARY_BUFFERS],
				14 * T * V + 4 * (T + 1) + 8519680);
			arena_finish(&arena);
		}
}

/* Bytes per logit at the loss, the bf16 logits among them (table of docs/runtimes.md). */
static void test_loss_bytes(void **state)
{
	(void)state;
	const int64_t T = 4096, V = 32000, h = 4096, resident = 4 * (T + 1) + 8519680;
	const struct {
		const char *words;
		int64_t per_token;
	} kinds[] = {
		{"runtime=pytorch-fsdp2 loss=native", 8 * V},
		{"runtime=pytorch-fsdp2 loss=upcast", 14 * V},
		{"runtime=pytorch-fsdp1 loss=float", 16 * V},
		{"runtime=pytorch-fsdp1 loss=fused", 4 * V},
		{"runtime=pytorch-fsdp1 loss=parallel", 10 * V},
		{"runtime=nanotron strategy=ZERO_1", 10 * V},
		{"runtime=internevo", 2 * V},
		{"loss=fused-linear", 4 * h},
	};
	for (int k = 0; k < COUNT_OF(kinds); k++) {
		struct arena arena = {0};
		const struct schedule *schedule =
			build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb", kinds[k].words);
		assert_int_equal(at_loss(&arena, schedule)[CATEGORY_TEMPORARY_BUFFERS],
			resident + T * kinds[k].per_token);
		arena_finish(&arena);
	}
}

/* Cut over tensor ranks: 16 bytes a logit in backward, when the logits are gone; the last stage of
 * a pipeline keeps them, because they are its output (torch 2.15, bench/torch/memory.py). */
static void test_loss_of_stages(void **state)
{
	(void)state;
	const int64_t T = 4096, V = 32000;
	for (int stages = 1; stages <= 2; stages++) {
		struct arena arena = {0};
		const struct schedule *s = build_words(&arena, "llama-2-7b", "2xdgx-a100-80gb",
			arena_printf(&arena, "tensor=2 loss=upcast pipeline=%d", stages));
		const struct program *p = &s->programs[s->n_classes - 1];
		int work = 0;
		while (p->buffers[work].role != BUFFER_LOSS_WORK)
			work++;
		assert_int_equal(p->buffers[work].bytes, T * V / 2 * (stages > 1 ? 16 : 14));
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_recompute_end),
		cmocka_unit_test(test_selective),
		cmocka_unit_test(test_selective_compiled),
		cmocka_unit_test(test_selective_tensor),
		cmocka_unit_test(test_selective_variants),
		cmocka_unit_test(test_activation_bytes),
		cmocka_unit_test(test_loss_bytes),
		cmocka_unit_test(test_loss_of_stages),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
