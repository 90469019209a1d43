/* Every catalogue file, names and NxNODE. */
#include "tests/topologies/sample.h"

#include <math.h>

#include "topologies/plausible.h"

static void assert_round_trip(
	struct arena *arena, const struct topology *topology, enum writer_format format)
{
	struct text first = {0}, second = {0};
	struct topology *again = NULL;
	struct error error = {0};

	topology_print(topology, format, &first);
	if (!topology_parse(arena, "printed", first.data, first.length, &again, &error))
		fail_msg("%s\n%s", error.message, first.data);
	assert_same_topology(topology, again);
	topology_print(again, format, &second);
	assert_string_equal(first.data, second.data);
	text_finish(&first);
	text_finish(&second);
}

static void every_file(void **state)
{
	struct arena arena = {0};

	(void)state;
	assert_true(n_topology_catalogue >= 10);
	for (int i = 0; i < n_topology_catalogue; i++) {
		struct topology *topology = NULL;
		struct error error = {0};

		if (!topology_load_name(&arena, topology_catalogue[i].name, &topology, &error))
			fail_msg("%s", error.message);
		assert_string_equal(topology->name, topology_catalogue[i].name);
		assert_string_equal(topology_catalogue_device(&arena, &topology_catalogue[i]),
			topology->device.name);
		assert_int_equal(topology->nodes, 1);
		assert_non_null(topology->source);
		assert_true(strlen(topology->source) > 20);
		/* A prior is never passed off as a measurement and says where it comes from. */
		assert_false(topology->calibration.measured);
		if (!calibration_is_empty(&topology->calibration))
			assert_memory_equal(topology->calibration.provenance, "prior: ", 7);
		if (i > 0)
			assert_true(strcmp(topology_catalogue[i - 1].name, topology->name) < 0);
		assert_round_trip(&arena, topology, WRITER_YAML);
		assert_round_trip(&arena, topology, WRITER_JSON);
	}
	arena_finish(&arena);
}

static int64_t devices_of(const char *node)
{
	return strstr(node, "nvl72") ? 72 : strcmp(node, "alps-gh200") == 0 ? 4 : 8;
}

/* The figures that published documents state, so that an edit of a file cannot go unnoticed. */
static void published_figures(void **state)
{
	static const struct {
		const char *name;
		int64_t memory_mib;
		double memory_bandwidth, bf16, fp16, fabric, node_network;
		int64_t cores;
		enum cpu_vendor cpu;
	} cases[] = {
		{"a100-pcie-8x", 81920, 1.935e12, 312e12, 312e12, 15e9, 50e9, 64, CPU_AMD},
		{"a3-highgpu-8g", 81559, 3.35e12, 989e12, 989e12, 370.8e9, 100e9, 104, CPU_INTEL},
		{"a3-megagpu-8g", 81559, 3.35e12, 989e12, 989e12, 370.8e9, 200e9, 104, CPU_INTEL},
		{"a3-ultragpu-8g", 143771, 4.8e12, 989e12, 989e12, 370.8e9, 400e9, 112, CPU_INTEL},
		{"a4-highgpu-8g", 183359, 8e12, 2250e12, 2250e12, 721.8e9, 400e9, 112, CPU_INTEL},
		{"a6000-8x", 49140, 0.768e12, 154.8e12, 154.8e12, 15e9, 0, 64, CPU_AMD},
		{"a800-8x", 81920, 2.039e12, 312e12, 312e12, 160e9, 200e9, 128, CPU_AMD},
		{"alps-gh200", 97871, 4e12, 989e12, 989e12, 370.8e9, 100e9, 288, CPU_ARM},
		{"bm.gpu.b4.8", 40960, 1.555e12, 312e12, 312e12, 240e9, 200e9, 64, CPU_AMD},
		{"dgx-a100-40gb", 40960, 1.555e12, 312e12, 312e12, 240e9, 200e9, 128, CPU_AMD},
		{"dgx-a100-80gb", 81920, 2.039e12, 312e12, 312e12, 240e9, 200e9, 128, CPU_AMD},
		{"dgx-b200", 183359, 8e12, 2250e12, 2250e12, 721.8e9, 400e9, 112, CPU_INTEL},
		{"dgx-b300", 275040, 8e12, 2250e12, 2250e12, 721.8e9, 800e9, 128, CPU_INTEL},
		{"dgx-h100", 81559, 3.35e12, 989e12, 989e12, 370.8e9, 400e9, 112, CPU_INTEL},
		{"dgx-h200", 143771, 4.8e12, 989e12, 989e12, 370.8e9, 400e9, 112, CPU_INTEL},
		{"dgx-v100", 32768, 0.9e12, 0, 125e12, 132e9, 50e9, 40, CPU_INTEL},
		{"g4dn.metal", 15360, 0.32e12, 0, 65e12, 10e9, 12.5e9, 48, CPU_INTEL},
		{"g5.48xlarge", 23028, 0.6e12, 70e12, 70e12, 15e9, 12.5e9, 96, CPU_AMD},
		{"g6.48xlarge", 23034, 0.3e12, 121e12, 121e12, 15e9, 12.5e9, 96, CPU_AMD},
		{"g6e.48xlarge", 46068, 0.864e12, 362e12, 362e12, 15e9, 50e9, 96, CPU_AMD},
		{"gaudi2-8x", 98304, 2.46e12, 432e12, 432e12, 262.5e9, 300e9, 80, CPU_INTEL},
		{"gb200-nvl72", 189471, 8e12, 2500e12, 2500e12, 721.8e9, 3600e9, 2592, CPU_ARM},
		{"gb300-nvl72", 284208, 8e12, 2500e12, 2500e12, 721.8e9, 7200e9, 2592, CPU_ARM},
		{"h100-pcie-8x", 81559, 2e12, 756e12, 756e12, 20e9, 200e9, 96, CPU_INTEL},
		{"h20-8x", 97871, 4e12, 148e12, 148e12, 370.8e9, 400e9, 112, CPU_INTEL},
		{"h800-8x", 81559, 3.35e12, 989e12, 989e12, 164.8e9, 400e9, 112, CPU_INTEL},
		{"l40s-8x", 46068, 0.864e12, 362e12, 362e12, 20e9, 100e9, 64, CPU_INTEL},
		{"lumi-g", 65520, 1.638e12, 191.5e12, 191.5e12, 108e9, 100e9, 64, CPU_AMD},
		{"nd96amsr-a100-v4", 81920, 2.039e12, 312e12, 312e12, 240e9, 200e9, 96, CPU_AMD},
		{"nd96isr-h100-v5", 81559, 3.35e12, 989e12, 989e12, 370.8e9, 400e9, 96, CPU_INTEL},
		{"nd96isr-mi300x-v5", 196592, 5.3e12, 1307e12, 1307e12, 336e9, 400e9, 96,
			CPU_INTEL},
		{"p3dn.24xlarge", 32768, 0.9e12, 0, 125e12, 132e9, 12.5e9, 48, CPU_INTEL},
		{"p4d.24xlarge", 40960, 1.555e12, 312e12, 312e12, 240e9, 50e9, 48, CPU_INTEL},
		{"p4de.24xlarge", 81920, 2.039e12, 312e12, 312e12, 240e9, 50e9, 48, CPU_INTEL},
		{"p5.48xlarge", 81559, 3.35e12, 989e12, 989e12, 370.8e9, 400e9, 96, CPU_AMD},
		{"p5e.48xlarge", 143771, 4.8e12, 989e12, 989e12, 370.8e9, 400e9, 96, CPU_AMD},
		{"p5en.48xlarge", 143771, 4.8e12, 989e12, 989e12, 370.8e9, 400e9, 96, CPU_INTEL},
		{"p6-b200.48xlarge", 183359, 8e12, 2250e12, 2250e12, 721.8e9, 400e9, 96, CPU_INTEL},
		{"rtx3090-8x", 24576, 0.936e12, 71e12, 71e12, 15e9, 0, 64, CPU_AMD},
		{"rtx4090-8x", 24564, 1.008e12, 165.15e12, 165.15e12, 15e9, 0, 64, CPU_AMD},
		{"rtx5090-8x", 32607, 1.792e12, 209.5e12, 209.5e12, 20e9, 0, 96, CPU_INTEL},
	};
	struct arena arena = {0};

	(void)state;
	assert_int_equal(n_topology_catalogue, COUNT_OF(cases));
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology *t = NULL;
		struct error error = {0};

		assert_true(topology_load_name(&arena, cases[i].name, &t, &error));
		assert_int_equal(topology_devices(t), devices_of(cases[i].name));
		assert_int_equal(t->device.memory_bytes, cases[i].memory_mib << 20);
		assert_true(t->device.memory_bandwidth == cases[i].memory_bandwidth);
		assert_true(device_peak_flops(&t->device, DTYPE_BF16) == cases[i].bf16);
		assert_true(device_peak_flops(&t->device, DTYPE_FP16) == cases[i].fp16);
		assert_true(device_peak_flops(&t->device, DTYPE_INT8) == 0);
		assert_true(t->fabric.bandwidth == cases[i].fabric);
		assert_true((double)t->network.nics_per_node * t->network.nic_bandwidth ==
			    cases[i].node_network);
		assert_int_equal(t->host.cores, cases[i].cores);
		assert_int_equal(t->host.cpu, cases[i].cpu);
	}
	arena_finish(&arena);
}

static void node_counts(void **state)
{
	struct arena arena = {0};
	struct topology *topology = NULL;
	struct error error = {0};

	(void)state;
	assert_true(topology_load_name(&arena, "2xdgx-a100-80gb", &topology, &error));
	assert_string_equal(topology->name, "2xdgx-a100-80gb");
	assert_int_equal(topology->nodes, 2);
	assert_int_equal(topology_devices(topology), 16);
	assert_true(topology_node_bandwidth(topology) == 200e9);
	assert_round_trip(&arena, topology, WRITER_YAML);
	assert_true(topology_load_name(&arena, "4xp5.48xlarge", &topology, &error));
	assert_int_equal(topology_devices(topology), 32);
	assert_true(topology_load_name(&arena, "1xdgx-h100", &topology, &error));
	assert_string_equal(topology->name, "dgx-h100");
	assert_int_equal(topology->nodes, 1);
	assert_true(topology_node_bandwidth(topology) > 1e300);
	assert_true(topology_load_name(&arena, "1000xp4d.24xlarge", &topology, &error));
	assert_int_equal(topology_devices(topology), 8000);
	arena_finish(&arena);
}

/* The bounds of what is plausible are the catalogue's smallest and largest values. */
static void plausible_bounds(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < n_topology_plausible; i++) {
		const struct plausible *row = &topology_plausible[i];
		double least = INFINITY, most = 0;
		for (int j = 0; j < n_topology_catalogue; j++) {
			struct topology *topology = NULL;
			struct error error = {0};
			assert_true(topology_load_name(
				&arena, topology_catalogue[j].name, &topology, &error));
			double value = plausible_value(row, topology);
			least = value > 0 ? fmin(least, value) : least;
			most = fmax(most, value);
		}
		if (fabs(least / row->least - 1) > 1e-9 || fabs(most / row->most - 1) > 1e-9)
			fail_msg("%s.%s: the catalogue has %.6g to %.6g", row->section, row->key,
				least, most);
	}
	arena_finish(&arena);
}

static void nothing_of_the_catalogue_is_doubted(void **state)
{
	struct arena arena = {0};
	struct topology *topology = NULL;
	struct error error = {0};
	struct text lines = {0};

	(void)state;
	for (int i = 0; i < n_topology_catalogue; i++) {
		assert_true(
			topology_load_name(&arena, topology_catalogue[i].name, &topology, &error));
		topology_doubts(topology, &arena, &lines);
	}
	assert_string_equal(text_string(&lines), "");
	topology->device.memory_bytes /= 2;
	topology_doubts(topology, &arena, &lines);
	assert_non_null(strstr(text_string(&lines), "device.memory is 15.9 GiB, but the"));
	text_finish(&lines);
	arena_finish(&arena);
}

/* Capitals are no other name. */
static void free_names(void **state)
{
	static const char *const names[] = {"2Xdgx-h100", "2xDGX-H100", "02xdgx_h100"};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++) {
		struct topology *topology = NULL;
		struct error error = {0};
		assert_true(topology_load_name(&arena, names[i], &topology, &error));
		assert_string_equal(topology->name, "2xdgx-h100");
	}
	arena_finish(&arena);
}

static void refused_names(void **state)
{
	static const struct {
		const char *name, *message;
	} cases[] = {
		{"dgx-h10", "topology \"dgx-h10\": unknown name, expected one of the catalogue, "
			    "NxNODE (2xdgx-h100), local or a file; did you mean dgx-h100?"},
		{"dgx-a100", "topology \"dgx-a100\": unknown name, expected one of the catalogue, "
			     "NxNODE (2xdgx-h100), local or a file; did you mean dgx-a100-40gb or "
			     "dgx-a100-80gb?"},
		{"2xdgx-a100-80g",
			"topology \"2xdgx-a100-80g\": unknown name, expected one of the catalogue, "
			"NxNODE (2xdgx-h100), local or a file; did you mean 2xdgx-a100-80gb?"},
		{"4dgx-h100",
			"topology \"4dgx-h100\": unknown name, expected one of the catalogue, "
			"NxNODE (2xdgx-h100), local or a file; did you mean 4xdgx-h100?"},
		{"somewhere", "topology \"somewhere\": unknown name, expected one of the "
			      "catalogue, NxNODE (2xdgx-h100), local or a file"},
		{"", "topology \"\": unknown name, expected one of the catalogue, NxNODE "
		     "(2xdgx-h100), local or a file"},
		{"x", "topology \"x\": unknown name, expected one of the catalogue, NxNODE "
		      "(2xdgx-h100), local or a file"},
		{"locl", "topology \"locl\": unknown name, expected one of the catalogue, NxNODE "
			 "(2xdgx-h100), local or a file; did you mean local?"},
		{"0xdgx-h100", "topology \"0xdgx-h100\": expected 1 to 1000000 nodes, got 0"},
		{"xdgx-h100", "topology \"xdgx-h100\": expected a number of nodes before the x, as "
			      "in 2xdgx-h100, got none"},
		{"99999999999999999999999999xdgx-h100",
			"topology \"99999999999999999999999999xdgx-h100\": expected 1 to 1000000 "
			"nodes, got 99999999999999999999999999"},
		{"2000000xdgx-h100",
			"topology \"2000000xdgx-h100\": expected 1 to 1000000 nodes, got 2000000"},
		{"1000000xdgx-h100", "topology \"1000000xdgx-h100\": nodes: expected at most "
				     "1000000 devices in all, got 1000000 nodes of 8"},
		{"-2xdgx-h100",
			"topology \"-2xdgx-h100\": unknown name, expected one of the catalogue, "
			"NxNODE (2xdgx-h100), local or a file; did you mean dgx-h100?"},
		{"16xh100", "topology \"16xh100\": h100 is a device, expected a node of several; "
			    "type 2xdgx-h100; other nodes with it: a3-megagpu-8g, a3-highgpu-8g, "
			    "h100-pcie-8x, nd96isr-h100-v5"},
		{"h100x16", "topology \"h100x16\": h100 is a device, expected a node of several; "
			    "type 2xdgx-h100; other nodes with it: a3-megagpu-8g, a3-highgpu-8g, "
			    "h100-pcie-8x, nd96isr-h100-v5"},
		{"dgx-h100:2", "topology \"dgx-h100:2\": the number of nodes stands in front; "
			       "type 2xdgx-h100"},
		{"16", "topology \"16\": unknown name, expected one of the catalogue, NxNODE "
		       "(2xdgx-h100), local or a file"},
		{"rtx4090", "topology \"rtx4090\": rtx4090 is a device, expected a node of "
			    "several; type rtx4090-8x"},
		{"2x3090", "topology \"2x3090\": 3090 is a device, expected a node of several; "
			   "type rtx3090-8x --gpus 2"},
		{"4090-8x", "topology \"4090-8x\": unknown name, expected one of the catalogue, "
			    "NxNODE (2xdgx-h100), local or a file; did you mean rtx4090-8x?"},
		{"2xnvl72", "topology \"2xnvl72\": unknown name, expected one of the catalogue, "
			    "NxNODE (2xdgx-h100), local or a file; did you mean 2xgb200-nvl72 or "
			    "2xgb300-nvl72?"},
		{"mi300", "topology \"mi300\": mi300 is a device, expected a node of several; type "
			  "nd96isr-mi300x-v5"},
		{"b300", "topology \"b300\": b300 is a device, expected a node of several; type "
			 "dgx-b300"},
		{"2xrtx4090-8x", "topology \"2xrtx4090-8x\": the catalogue has no network for "
				 "rtx4090-8x; type `shardplan topologies import --like rtx4090-8x "
				 "--nodes 2 --network ethernet:1x100Gbit/s -o my.yaml`, and give "
				 "my.yaml"},
		{"dgx-h100,dgx-a100-80gb",
			"topology \"dgx-h100,dgx-a100-80gb\": all nodes are of one kind here, "
			"expected one name; plan for the slower kind, as many of it as there are "
			"nodes (2xdgx-a100-80gb)"},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology *topology = NULL;
		struct error error = {0};

		assert_false(topology_load_name(&arena, cases[i].name, &topology, &error));
		assert_null(topology);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
		assert_string_equal(error.message, cases[i].message);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_file),
		cmocka_unit_test(published_figures),
		cmocka_unit_test(node_counts),
		cmocka_unit_test(plausible_bounds),
		cmocka_unit_test(nothing_of_the_catalogue_is_doubted),
		cmocka_unit_test(free_names),
		cmocka_unit_test(refused_names),
	};

	return cmocka_run_group_tests_name("topologies/catalogue", tests, NULL, NULL);
}
