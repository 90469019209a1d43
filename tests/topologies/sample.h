/* Shared by the tests of this folder: a detected machine in memory, and bitwise comparison. */
#ifndef TESTS_TOPOLOGIES_SAMPLE_H
#define TESTS_TOPOLOGIES_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "topologies/topologies.h"

/* As detection and `calibrate` would make it: figures that no unit prefix prints evenly. */
static inline struct topology sample_local(void)
{
	static struct calibration_collective pieces[] = {
		{COLLECTIVE_ALL_GATHER, 2, 1, 0, 1.2345678901234567e-05, 3141592653.5897932},
		{COLLECTIVE_ALL_GATHER, 2, 1, 65537, 0, 1.0 / 3 * 1e10},
		{COLLECTIVE_ALL_GATHER, 4, 1, 1 << 20, 7.1e-6, 2.5e9},
		{COLLECTIVE_REDUCE_SCATTER, 2, 1, 0, 3e-5, 1e9},
		{COLLECTIVE_REDUCE_SCATTER, 4, 2, 0, 0.1 + 0.2, 123456789},
		{COLLECTIVE_ALL_REDUCE, 4, 1, 0, 5e-324, 1.7976931348623157e308},
	};

	return (struct topology){
		.name = "local",
		.source = "detected: 2 cores, \"quotes\" and a colon: yes",
		.nodes = 1,
		.devices_per_node = 4,
		.device = {"some CPU @ 2.20GHz", DEVICE_CPU, GENERATION_CPU, 16823549952,
			12.3456789e9, 1e11 / 7, 0, 0, 0, 1},
		.fabric = {FABRIC_SHARED_MEMORY, 1e10 / 3, 1.1e-6, 0},
		.network = {.kind = NETWORK_NONE},
		.host = {16823549953, 25.6e9 / 7, 2, 0, 0, CPU_OTHER},
		.shares_host = true,
		.calibration = {.measured = true,
			.date = "2025-01-02T03:04:05Z",
			.provenance = "shardplan calibrate 0.1.0 # not a comment",
			.gemm_flops = 98765432109.87654,
			.gemm_half_m = 1.0 / 3,
			.gemm_half_n = 17.5,
			.gemm_half_k = 1e-3,
			.attention_forward_flops = 2e10 / 3,
			.attention_backward_flops = 1e10 / 3,
			.memory_bandwidth = 9.87e9,
			.memory_bandwidth_shared = 1.5e10 / 7,
			.kernel_overhead = 1e-6 / 3,
			.host_overhead = 2e-7 / 3,
			.host_factor = 4.0 / 3,
			.optimizer_bandwidth = 5e9 / 3,
			.compute_spread = 0.0625,
			.collective_spread = 0.125,
			.host_spread = 0.25,
			.residual_spread = 0.03125,
			.compute_best = 0.9375,
			.collective_best = 1.0 / 3,
			.step_p95 = 1.0625,
			.yardstick = 1e-3 / 3,
			.n_collectives = COUNT_OF(pieces),
			.collectives = pieces,
			.n_steps = 2,
			.steps = {{STEP_MLP_PLAIN, DTYPE_BF16, STEP_THREADS_ALL,
					  {[STEP_FORWARD] = 1.0 / 3, [STEP_OPTIMIZER] = 1.125}},
				{STEP_MLP_GATED, DTYPE_FP32, STEP_THREADS_ONE,
					{1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7}}}},
	};
}

static inline void assert_fields_equal(
	const struct field *fields, const void *expected, const void *actual)
{
	for (; fields->type != FIELD_TYPE_END; fields++) {
		const struct field one[] = {*fields, FIELD_END};

		if (!fields_equal(one, expected, actual))
			fail_msg("field %s differs", fields->name);
	}
}

/* Every member, doubles bit for bit (fields_equal compares them with ==, and none is NaN or 0). */
static inline void assert_same_topology(const struct topology *a, const struct topology *b)
{
	assert_fields_equal(topology_fields, a, b);
	assert_fields_equal(device_fields, &a->device, &b->device);
	assert_fields_equal(fabric_fields, &a->fabric, &b->fabric);
	assert_fields_equal(network_fields, &a->network, &b->network);
	assert_fields_equal(host_fields, &a->host, &b->host);
	assert_fields_equal(overheads_fields, &a->overheads, &b->overheads);
	assert_fields_equal(calibration_fields, &a->calibration, &b->calibration);
	assert_int_equal(a->calibration.n_collectives, b->calibration.n_collectives);
	for (int i = 0; i < a->calibration.n_collectives; i++)
		assert_fields_equal(calibration_collective_fields, &a->calibration.collectives[i],
			&b->calibration.collectives[i]);
	assert_int_equal(a->calibration.n_products, b->calibration.n_products);
	for (int i = 0; i < a->calibration.n_products; i++)
		assert_fields_equal(calibration_product_fields, &a->calibration.products[i],
			&b->calibration.products[i]);
	assert_int_equal(a->calibration.n_kernels, b->calibration.n_kernels);
	for (int i = 0; i < a->calibration.n_kernels; i++)
		assert_fields_equal(calibration_kernel_fields, &a->calibration.kernels[i],
			&b->calibration.kernels[i]);
	assert_int_equal(a->n_provenance, b->n_provenance);
	for (int i = 0; i < a->n_provenance; i++) {
		assert_string_equal(a->provenance[i].key, b->provenance[i].key);
		assert_string_equal(a->provenance[i].text, b->provenance[i].text);
	}
	assert_int_equal(a->calibration.n_steps, b->calibration.n_steps);
	for (int i = 0; i < a->calibration.n_steps; i++)
		assert_fields_equal(calibration_step_fields, &a->calibration.steps[i],
			&b->calibration.steps[i]);
}

#endif
