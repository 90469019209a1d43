/* The worked example: Llama-2-7B on two nodes of eight A100, FSDP1, bf16 compute, fp32 shards,
 * AdamW (foreach), one sequence of 4096 tokens per rank. Every figure is derived by hand from P, B
 * and R in the comments beside it. */
#include "cases.h"
#include "sketch.h"

#include <math.h>

static const int64_t P = INT64_C(6738415616); /* all parameters */
static const int64_t B = 202383360;           /* a block */
static const int64_t R = 262148096;           /* the root unit */
enum { LAYERS = 32 };

static const struct row {
	const char *strategy;
	int64_t shard;         /* ranks that share a unit */
	double peak_gb[2];     /* without and with full checkpointing */
	double per_rank_gb[2]; /* fp32 and bf16 reduction */
	double egress_gb[2];
	/* ms alone: the one communicator; inside and across nodes for hybrid */
	double fast[2], middle[2], slow[2];
} rows[] = {
	{"FULL_SHARD", 16, {28.78, 9.70}, {50.05, 37.41}, {50.05, 37.41}, {271, 0}, {532, 0},
		{4181, 0}},
	{"SHARD_GRAD_OP", 16, {40.52, 21.44}, {37.90, 25.27}, {37.90, 25.27}, {204, 0}, {402, 0},
		{3166, 0}},
	{"HYBRID_SHARD", 8, {33.83, 16.85}, {50.08, 36.60}, {26.95, 13.48}, {198, 142}, {198, 282},
		{198, 2248}},
	{"HYBRID_SHARD_ZERO2", 8, {45.57, 26.49}, {38.75, 25.27}, {26.95, 13.48}, {150, 142},
		{150, 282}, {150, 2248}},
	{"NO_SHARD", 1, {134.77, 134.77}, {50.54, 25.27}, {50.54, 25.27}, {0, 273}, {0, 536},
		{0, 4221}},
};

static const struct prediction *predict(struct case_ *c, const struct row *row, const char *more)
{
	struct simulation_options options = {.no_contention = true};
	char *choices;

	choices = arena_printf(
		&c->arena, "runtime=pytorch-fsdp1 strategy=%s seq_len=4096%s", row->strategy, more);
	case_plan(c, choices);
	return case_simulate(c, &options, false);
}

/* NO_SHARD has no frees that the limiter could wait for, so the launch queue alone keeps the host's
 * copies of later units from piling up: less than one forward ahead, however many micro-batches. */
static void test_copies_do_not_pile_up(void **state)
{
	struct case_ c;
	int64_t ledger, peaks[2];

	(void)state;
	case_load(&c, "llama-2-7b", "dgx-a100-80gb");
	for (int i = 0; i < 2; i++) {
		const struct prediction *p;

		case_plan(&c, i == 0 ? "runtime=pytorch-fsdp1 strategy=NO_SHARD grad_accum=2"
				     : "runtime=pytorch-fsdp1 strategy=NO_SHARD grad_accum=8");
		p = case_simulate(&c, &(struct simulation_options){0}, false);
		peaks[i] = p->peak_allocated_bytes;
		ledger = p->ledger_peak_bytes;
	}
	assert_int_equal(peaks[0], peaks[1]);
	assert_true(peaks[0] > ledger);
	assert_true(peaks[0] < ledger + 2 * P);
	case_finish(&c);
}

static void assert_within(
	const char *what, const struct row *row, double got, double expected, double tolerance)
{
	if (!(fabs(got / expected - 1) <= tolerance))
		fail_msg("%s, %s: expected %.4g within %.2g %%, got %.4g", row->strategy, what,
			expected, 100 * tolerance, got);
}

static void test_model_states_are_exact(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct case_ c;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		const struct prediction *p = predict(&c, &rows[i], "");
		assert_int_equal(p->model_states_parameters, 4 * P / rows[i].shard);
		assert_int_equal(p->model_states_gradients, 4 * P / rows[i].shard);
		assert_int_equal(p->model_states_optimizer_state, 8 * P / rows[i].shard);
		case_finish(&c);
	}
}

/* FULL_SHARD: gathers of P and of the blocks again, reduction of P; over F ranks each byte is sent
 * (F - 1) / F times. Hybrid adds an all-reduce of the shards over two nodes. */
static double wire(const struct row *row, bool reshards, int64_t e_r)
{
	double f = (double)row->shard, once = (f - 1) / f;
	double bytes = once * (double)(2 * P + e_r * P + (reshards ? 2 * LAYERS * B : 0));

	if (row->shard == 1)
		return 2 * 15.0 / 16 * (double)(e_r * P);
	if (row->shard == 8)
		bytes += 2 * 0.5 * (double)(e_r * P) / f;
	return bytes;
}

static void test_wire_is_exact(void **state)
{
	(void)state;
	assert_true(LAYERS * B + R == P);
	for (int i = 0; i < COUNT_OF(rows) * 2; i++) {
		const struct row *row = &rows[i / 2];
		int bf16 = i % 2;
		int64_t e_r = bf16 ? 2 : 4;
		struct case_ c;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		const struct prediction *p = predict(&c, row, bf16 ? " reduce_dtype=bf16" : "");
		double expected = wire(row, i / 2 == 0 || i / 2 == 2, e_r);
		assert_within("wire", row, p->wire_bytes_per_rank, expected, 1e-12);
		assert_within(
			"wire", row, p->wire_bytes_per_rank / 1e9, row->per_rank_gb[bf16], 1e-3);
		/* A flat ring enters and leaves each node once; eight replica groups of two. */
		double egress = row->shard == 8 ? 8 * 2 * 0.5 * (double)(e_r * P) / 8 : expected;
		assert_within("egress", row, p->wire_bytes_node_egress, egress, 1e-12);
		assert_within(
			"egress", row, p->wire_bytes_node_egress / 1e9, row->egress_gb[bf16], 1e-3);
		case_finish(&c);
	}
}

static void test_collective_counts(void **state)
{
	static const int counts[][3] = {
		{65, 33, 0}, {33, 33, 0}, {65, 33, 33}, {33, 33, 33}, {0, 0, 33}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct case_ c;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		const struct prediction *p = predict(&c, &rows[i], "");
		for (int k = 0; k < 3; k++)
			assert_int_equal(p->collectives[k], counts[i][k]);
		case_finish(&c);
	}
}

/* The derived peaks look at one moment at a time; ours, in device time, agree within 1 %. */
static void test_peaks(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(rows) * 2; i++) {
		const struct row *row = &rows[i / 2];
		bool recomputes = i % 2 == 1;
		struct case_ c;
		case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
		const struct prediction *p =
			predict(&c, row, recomputes ? " activation_checkpointing=full" : "");
		assert_within("peak", row, (double)p->peak_allocated_bytes / 1e9,
			row->peak_gb[recomputes], 0.01);
		assert_int_equal(p->fits, row->shard == 1 ? FITS_NO : FITS_YES);
		case_finish(&c);
	}
}

/* The derived times are bytes over links. Measured rings take up to an eighth more; a tree between
 * two nodes sends half of what a ring does, so an all-reduce over both may take as little as half.
 */
static void assert_between(
	const char *what, const struct row *row, double got, double expected, double least)
{
	if (!(got >= least * expected && got <= 1.125 * expected))
		fail_msg("%s, %s: expected %.4g to %.4g, got %.4g", row->strategy, what,
			least * expected, 1.125 * expected, got);
}

static void check_times(const struct row *row, int64_t nics, double nic, const double expected[2])
{
	struct case_ c;
	const struct prediction *p;

	case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
	c.topology->network.nics_per_node = nics;
	c.topology->network.nic_bandwidth = nic;
	p = predict(&c, row, "");
	if (expected[0] > 0)
		assert_between("gathers and reductions", row,
			1e3 * (p->time.all_gather + p->time.reduce_scatter), expected[0], 0.98);
	if (expected[1] > 0)
		assert_between("all-reduces", row, 1e3 * p->time.all_reduce, expected[1], 0.5);
	case_finish(&c);
}

static void test_communication_times(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		check_times(&rows[i], 8, 25e9, rows[i].fast);
		check_times(&rows[i], 4, 25e9, rows[i].middle);
		check_times(&rows[i], 1, 12.5e9, rows[i].slow);
	}
}

/* Overlap hides nearly all communication at 8 x 200 Gbit/s and cannot at 1 x 100. */
static void test_exposure(void **state)
{
	struct simulation_options options = {0};
	struct case_ c;
	(void)state;
	case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
	case_plan(&c, "runtime=pytorch-fsdp1");
	struct prediction fast = *case_simulate(&c, &options, false);
	assert_true(fast.time.exposed_communication < 0.06 * fast.step_time);
	c.topology->network.nics_per_node = 1;
	c.topology->network.nic_bandwidth = 12.5e9;
	struct prediction slow = *case_simulate(&c, &options, false);
	assert_true(slow.time.exposed_communication > 0.6 * slow.step_time);
	assert_true(slow.step_time >= 4.181);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_do_not_pile_up),
		cmocka_unit_test(test_model_states_are_exact),
		cmocka_unit_test(test_wire_is_exact),
		cmocka_unit_test(test_collective_counts),
		cmocka_unit_test(test_peaks),
		cmocka_unit_test(test_communication_times),
		cmocka_unit_test(test_exposure),
	};
	return cmocka_run_group_tests_name("simulator llama-2-7b", tests, NULL, NULL);
}
