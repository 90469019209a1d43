/* Topology files: valid ones, messages for invalid ones, and writing them back. */
#include "tests/topologies/sample.h"

/* A good file; `edit` replaces the first occurrence of one text in it by another. */
static const char good[] = "shardplan: topology/1\n"
			   "name: lab\n"
			   "nodes: 2\n"
			   "devices_per_node: 4\n"
			   "device:\n"
			   "  name: A100\n"
			   "  kind: gpu\n"
			   "  generation: ampere\n"
			   "  memory: 40GiB\n"
			   "  memory_bandwidth: 1555GB/s\n"
			   "  bf16: 312TFLOPS\n"
			   "fabric:\n"
			   "  kind: nvswitch\n"
			   "  bandwidth: 240GB/s\n"
			   "network:\n"
			   "  kind: infiniband\n"
			   "  nics_per_node: 4\n"
			   "  nic_bandwidth: 80Gbit/s\n"
			   "host:\n"
			   "  memory: 1TiB\n"
			   "  memory_bandwidth: 400GB/s\n"
			   "  cores: 64\n"
			   "  pcie_bandwidth: 24GB/s\n"
			   "  cpu: amd\n";

static char *edit(struct arena *arena, const char *from, const char *to)
{
	const char *at = strstr(good, from);

	assert_non_null(at);
	return arena_printf(arena, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
}

static bool parse(
	struct arena *arena, const char *text, struct topology **topology, struct error *error)
{
	return topology_parse(arena, "lab.yaml", text, strlen(text), topology, error);
}

static void reads(void **state)
{
	struct arena arena = {0};
	struct topology *topology = NULL;
	struct error error = {0};

	(void)state;
	assert_true(parse(&arena, good, &topology, &error));
	assert_string_equal(topology->name, "lab");
	assert_null(topology->source);
	assert_int_equal(topology_devices(topology), 8);
	assert_int_equal(topology->device.memory_bytes, 40LL << 30);
	assert_true(topology->network.nic_bandwidth == 10e9);
	assert_true(topology->network.oversubscription == 1);
	assert_true(topology_node_bandwidth(topology) == 40e9);
	assert_true(device_peak_flops(&topology->device, DTYPE_BF16) == 312e12);
	assert_true(device_peak_flops(&topology->device, DTYPE_FP8) == 0);
	assert_true(calibration_is_empty(&topology->calibration));
	assert_true(
		parse(&arena, edit(&arena, "infiniband\n", "infiniband\n  oversubscription: 4\n"),
			&topology, &error));
	assert_true(topology_node_bandwidth(topology) == 10e9);
	arena_finish(&arena);
}

static void refuses(void **state)
{
	static const struct {
		const char *from, *to, *message;
	} cases[] = {
		{"80Gbit/s", "80G",
			"lab.yaml:18:18: nic_bandwidth: expected a bandwidth such as 200Gbit/s or "
			"25GB/s of 0 or more, got \"80G\"; write 80Gbit/s or 80GB/s"},
		{"80Gbit/s", "80",
			"lab.yaml:18:18: nic_bandwidth: 80B/s is not plausible, "
			"expected about 100Gbit/s to 800Gbit/s; write 80Gbit/s"},
		{"80Gbit/s", "-80Gbit/s",
			"lab.yaml:18:18: nic_bandwidth: expected a bandwidth such as 200Gbit/s or "
			"25GB/s of 0 or more, got \"-80Gbit/s\""},
		{"80Gbit/s", "0",
			"lab.yaml:18:18: nic_bandwidth: expected more than 0 (a network was "
			"named), got 0"},
		{"40GiB", "40Gb",
			"lab.yaml:9:11: memory: expected a size such as 80GiB greater than 0, got "
			"\"40Gb\""},
		{"312TFLOPS", "312",
			"lab.yaml:11:9: bf16: 312FLOPS is not plausible, expected about 70TFLOPS "
			"to 2.5PFLOPS; write 312TFLOPS"},
		{"312TFLOPS", "312TFLOPS\ncalibration:\n  memory_bandwidth: 1e-320TB/s",
			"lab.yaml:13:21: memory_bandwidth: 1e-308 is not plausible, expected 1000 "
			"or more; leave it out, or calibrate anew"},
		{"kind: infiniband", "kind: TCP",
			"lab.yaml:16:9: kind: TCP is called ethernet here"},
		{"nodes: 2", "nodes: 0",
			"lab.yaml:3:8: nodes: expected a whole number greater than 0, got \"0\""},
		{"nodes: 2", "nodes: 2.5",
			"lab.yaml:3:8: nodes: expected a whole number greater than 0, got \"2.5\""},
		{"nodes: 2", "nodes: 1000000000000",
			"lab.yaml:3:8: nodes: expected at most 1000000 devices in all, got "
			"1000000000000 nodes of 4"},
		{"devices_per_node: 4", "devices_per_node: -4",
			"lab.yaml:4:19: devices_per_node: expected a whole number greater than 0, "
			"got \"-4\""},
		{"devices_per_node: 4\n", "",
			"lab.yaml:1:1: missing key \"devices_per_node\", expected a whole number "
			"greater than 0"},
		{"kind: infiniband", "kind: none",
			"lab.yaml:16:9: kind: 2 nodes need a network, expected a kind, "
			"nics_per_node and nic_bandwidth, got none"},
		{"kind: infiniband", "kind: infinband",
			"lab.yaml:16:9: kind: expected one of none, infiniband, roce, efa, "
			"ethernet, tcpx, got \"infinband\", did you mean \"infiniband\"?"},
		{"kind: infiniband", "kind: infiniband\n  protocols: LL",
			"lab.yaml:17:14: protocols: expected one of all, simple, simple-ll128, "
			"got \"LL\", did you mean \"all\"?"},
		{"network:\n  kind: infiniband\n  nics_per_node: 4\n  nic_bandwidth: 80Gbit/s\n",
			"",
			"lab.yaml:1:1: network.kind: 2 nodes need a network, expected a kind, "
			"nics_per_node and nic_bandwidth, got none"},
		{"  nics_per_node: 4\n", "",
			"lab.yaml:16:3: network: nics_per_node: expected more than 0 (a network "
			"was named), got 0"},
		{"kind: infiniband", "kind: infiniband\n  oversubscription: 0.5",
			"lab.yaml:17:21: oversubscription: expected 1 (full bisection) or more, "
			"got 0.5"},
		{"cores: 64", "coers: 64",
			"lab.yaml:22:3: coers: unknown key, did you mean \"cores\"?"},
		{"name: lab", "nmae: lab",
			"lab.yaml:2:1: nmae: unknown key, did you mean \"name\"?"},
		{"fabric:\n  kind: nvswitch\n  bandwidth: 240GB/s\n", "",
			"lab.yaml:1:1: missing key \"fabric\", expected a map of its properties"},
		{"  bandwidth: 240GB/s\n", "",
			"lab.yaml:13:3: fabric: bandwidth: expected more than 0 (the devices of a "
			"node exchange data), got 0"},
		{"fabric:\n  kind: nvswitch\n  bandwidth: 240GB/s\n", "fabric: fast\n",
			"lab.yaml:12:9: fabric: expected a map of its properties"},
		{"host:", "device: {}\nhost:",
			"lab.yaml:19:1: device: duplicate key, already given in line 5; remove one "
			"of them"},
		{"generation: ampere", "generation: cpu",
			"lab.yaml:8:15: generation: expected a GPU generation for a device of kind "
			"gpu, got cpu"},
		{"  bf16: 312TFLOPS\n", "",
			"lab.yaml:6:3: device: expected a peak (fp32, bf16, fp16 or fp8) or a "
			"calibration with gemm_flops, got neither"},
		{"nodes: 2", "nodes: 2\nshares_host: true",
			"lab.yaml:4:14: shares_host: expected CPU devices (ranks of one host), got "
			"a GPU"},
		{"  pcie_bandwidth: 24GB/s\n", "",
			"lab.yaml:20:3: host: pcie_bandwidth: expected more than 0 (GPUs hang on "
			"it), got 0"},
		{"topology/1", "topology/2",
			"lab.yaml:1:12: shardplan: expected topology/1, got topology/2"},
		{"topology/1", "plan/1",
			"lab.yaml:1:12: shardplan: expected topology/1, got plan/1"},
		{"shardplan: topology/1\n", "",
			"lab.yaml:1:1: missing key \"shardplan\", add `shardplan: topology/1` as "
			"the first line"},
		{"host:", "overheads: {context: 0}\nhost:",
			"lab.yaml:19:22: context: expected a size such as 80GiB greater than 0, "
			"got \"0\""},
		{"host:", "overheads: {communicator: 41GiB}\nhost:",
			"lab.yaml:19:27: communicator: expected at most device.memory, 42949672960 "
			"bytes, got 44023414784"},
		{"host:", "overheads: {kernels: 1MiB}\nhost:",
			"lab.yaml:19:13: kernels: unknown key; known here: context, communicator, "
			"workspace"},
		{"host:", "overheads: 1GiB\nhost:",
			"lab.yaml:19:12: overheads: expected a map of its properties"},
		{"  cpu: amd\n", "  cpu: amd\ncalibration: {collectives: {}}\n",
			"lab.yaml:25:28: collectives: expected a list of measured segments"},
		{good, "[]", "lab.yaml:1:1: expected a topology (a map), got something else"},
		{good, "", "lab.yaml: the document is empty, expected YAML or JSON"},
		{good, "shardplan: [topology/1",
			"lab.yaml:2:1: YAML syntax: the text ends too early, a bracket or a quote "
			"is not closed"},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology *topology = NULL;
		struct error error = {0};

		assert_false(
			parse(&arena, edit(&arena, cases[i].from, cases[i].to), &topology, &error));
		assert_null(topology);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
		assert_string_equal(error.message, cases[i].message);
	}
	arena_finish(&arena);
}

/* What a truncated download looks like: never a crash, and only the whole file is accepted. */
static void truncated_anywhere(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (size_t length = 0; length + 1 < strlen(good) - strlen("  cpu: amd"); length++) {
		struct topology *topology = NULL;
		struct error error = {0};

		assert_false(topology_parse(&arena, "cut", good, length, &topology, &error));
		assert_int_equal(error.code, EXIT_CODE_INPUT);
		assert_true(error.message[0] != '\0');
	}
	arena_finish(&arena);
}

static void local_round_trips(void **state)
{
	const struct topology local = sample_local();
	static const enum writer_format formats[] = {WRITER_YAML, WRITER_JSON, WRITER_JSON_COMPACT};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(formats); i++) {
		struct text text = {0}, again = {0};
		struct topology *topology = NULL;
		struct error error = {0};

		topology_print(&local, formats[i], &text);
		if (!topology_parse(
			    &arena, "local.yaml", text.data, text.length, &topology, &error))
			fail_msg("%s\n%s", error.message, text.data);
		assert_same_topology(&local, topology);
		topology_print(topology, formats[i], &again);
		assert_string_equal(text.data, again.data);
		text_finish(&text);
		text_finish(&again);
	}
	arena_finish(&arena);
}

/* What is given comes back, what is not stays absent: the runtime's. */
static void overheads_round_trip(void **state)
{
	static const char *const given[] = {"context: 512.5MiB", "communicator: 1",
		"workspace: 32MiB", "context: 40GiB, communicator: 3MiB, workspace: 7B"};
	static const struct overheads expected[] = {
		{.context_bytes = 537395200},
		{.communicator_bytes = 1},
		{.workspace_bytes = 32 << 20},
		{INT64_C(40) << 30, 3 << 20, 7},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(given); i++) {
		char *to = arena_printf(&arena, "overheads: {%s}\nhost:", given[i]);
		struct topology *topology = NULL, *again = NULL;
		struct text text = {0};
		struct error error = {0};

		assert_true(parse(&arena, edit(&arena, "host:", to), &topology, &error));
		assert_fields_equal(overheads_fields, &expected[i], &topology->overheads);
		topology_print(topology, WRITER_YAML, &text);
		assert_non_null(strstr(text.data, "overheads:"));
		assert_true(parse(&arena, text.data, &again, &error));
		assert_same_topology(topology, again);
		text_finish(&text);
	}
	arena_finish(&arena);
}

static void overheads_are_of_gpus(void **state)
{
	struct topology local = sample_local();
	struct error error = {0};

	(void)state;
	local.overheads.workspace_bytes = 1;
	assert_false(topology_check(&local, NULL, &error));
	assert_string_equal(error.message,
		"topology \"local\": overheads.workspace: expected a GPU, got a device of kind "
		"cpu; leave it out");
}

/* The negative control of the comparison above: one bit of one double is seen. */
static void one_bit_is_seen(void **state)
{
	struct topology a = sample_local(), b = sample_local();
	uint64_t bits;

	(void)state;
	memcpy(&bits, &b.calibration.gemm_half_m, sizeof(bits));
	bits ^= 1;
	memcpy(&b.calibration.gemm_half_m, &bits, sizeof(bits));
	assert_true(fields_equal(device_fields, &a.device, &b.device));
	assert_false(fields_equal(calibration_fields, &a.calibration, &b.calibration));
}

/* A plan file holds the topology as a map among others. */
static void inside_a_plan(void **state)
{
	const struct topology local = sample_local();
	struct topology *topology = NULL;
	struct arena arena = {0};
	struct writer writer;
	struct text text = {0};
	struct error error = {0};
	struct node *root;

	(void)state;
	writer_init(&writer, &text, WRITER_YAML);
	writer_string(&writer, "shardplan", "plan/1");
	writer_begin_map(&writer, "topology");
	topology_write(&local, &writer);
	writer_end_map(&writer);
	writer_finish(&writer);
	root = document_parse(&arena, "plan.yaml", text.data, text.length, 0, &error);
	assert_non_null(root);
	assert_true(topology_read(&arena, node_get(root, "topology"), &topology, &error));
	assert_same_topology(&local, topology);
	text_finish(&text);
	arena_finish(&arena);
}

/* Detection fills the struct itself: the same laws, with the name in front. */
static void checks_without_a_document(void **state)
{
	static const struct {
		size_t offset;
		double value;
		const char *message;
	} cases[] = {
		{offsetof(struct topology, device.memory_bandwidth), 0,
			"topology \"local\": device.memory_bandwidth: expected more than 0 "
			"(element-wise kernels run at it), got 0"},
		{offsetof(struct topology, host.memory_bandwidth), -1,
			"topology \"local\": host.memory_bandwidth: expected more than 0 (offload "
			"needs it), got -1"},
		{offsetof(struct topology, fabric.bandwidth), 0.0 / 0.0,
			"topology \"local\": fabric.bandwidth: expected more than 0 (the devices "
			"of a node exchange data), got "},
	};
	struct topology local = sample_local();
	struct error error = {0};

	(void)state;
	assert_true(topology_check(&local, NULL, &error));
	for (int i = 0; i < COUNT_OF(cases); i++) {
		local = sample_local();
		memcpy((char *)&local + cases[i].offset, &cases[i].value, sizeof(double));
		error_clear(&error);
		assert_false(topology_check(&local, NULL, &error));
		assert_memory_equal(error.message, cases[i].message, strlen(cases[i].message));
	}
	local = sample_local();
	struct calibration_collective swapped[] = {
		local.calibration.collectives[1], local.calibration.collectives[0]};
	local.calibration.collectives = swapped;
	local.calibration.n_collectives = 2;
	error_clear(&error);
	assert_false(topology_check(&local, NULL, &error));
	assert_string_equal(error.message,
		"topology \"local\": calibration.collectives: expected segments sorted by "
		"collective, ranks, "
		"nodes, from_bytes and each once, got entry 2 at or before entry 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads),
		cmocka_unit_test(refuses),
		cmocka_unit_test(truncated_anywhere),
		cmocka_unit_test(local_round_trips),
		cmocka_unit_test(overheads_round_trip),
		cmocka_unit_test(overheads_are_of_gpus),
		cmocka_unit_test(one_bit_is_seen),
		cmocka_unit_test(inside_a_plan),
		cmocka_unit_test(checks_without_a_document),
	};

	return cmocka_run_group_tests_name("topologies/files", tests, NULL, NULL);
}
