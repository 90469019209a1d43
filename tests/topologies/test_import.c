/* Small outputs of other tools: how they are read, missing figures, contradictions, and one line of
 * message for any damage. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sample.h"

#include "topologies/import/import.h"

/* A job of eight ranks; the all-gather of 1 MiB and more. */
static const char all_gather_log[] =
	"# nThread 1 nGpus 8 minBytes 1048576 maxBytes 8388608 step: 2(factor) warmup iters: 5\n"
	"# Collective test starting: all_gather_perf\n"
	"#\n# Using devices\n"
	"#  Rank  0 Group  0 Pid  77 on  alpha device  0 [0x0f] NVIDIA A100-SXM4-80GB\n"
	"#  Rank  1 Group  0 Pid  77 on  alpha device  1 [0x15] NVIDIA A100-SXM4-80GB\n"
	"#  Rank  2 Group  0 Pid  78 on  beta device  0 [0x0f] NVIDIA A100-SXM4-80GB\n"
	"#  Rank  3 Group  0 Pid  78 on  beta device  1 [0x15] NVIDIA A100-SXM4-80GB\n"
	"#\n"
	"#       size         count      type   redop    root     time   algbw   busbw #wrong     "
	"time   algbw   busbw #wrong\n"
	"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n"
	"alpha:77:77 [0] NCCL INFO comm 0x5 rank 0 nranks 4 - Init COMPLETE\n"
	"     1048576         65536     float    none      -1   100.00   10.49    7.86      0   "
	"101.00   10.38    7.79      0\n"
	"     2097152        131072     float    none      -1   150.00   13.98   10.49      0   "
	"151.00   13.89   10.42    N/A\n"
	"     4194304        262144     float    none      -1   250.00   16.78   12.58      0   "
	"251.00   16.71   12.53      0\n"
	"     8388608        524288     float    none      -1   700.00   11.98    8.99      0   "
	"701.00   11.97    8.97      0\n"
	"# Out of bounds values : 0 OK\n"
	"# Avg bus bandwidth    : 9.98\n";

/* Tagged by mpirun, indented, underlined, only in place, no list of devices, no footer. */
static const char all_reduce_log[] =
	"  [1,0]<stdout>:#       size         count      type   redop    root     time   algbw   "
	"busbw #wrong\n"
	"  [1,0]<stdout>:\033[4m    67108864      16777216     float     sum      -1    996.0   "
	"67.38  117.92      0\033[0m\r\n"
	"  ...\n"
	"  [1,0]<stdout>:  1073741824     268435456     float     sum      -1   6426.3  167.09  "
	"292.41      0\n";

static const char gather_json[] =
	"{\"version\": 3, \"args\": [\"./build/reduce_scatter_perf\", \"-g\", \"4\"],\n"
	" \"env\": [\"SECRET=1\"], \"nccl_version\": 22809,\n"
	" \"config\": {\"nthreads\": 1, \"ngpus\": 4, \"blocking_collectives\": \"false\",\n"
	"  \"devices\": [{\"rank\": 0, \"hostname\": \"n0\", \"device\": 0,\n"
	"   \"device_info\": \"NVIDIA H100 80GB HBM3\"}]},\n"
	" \"results\": [{\"size\": 1000000, \"count\": 1, \"type\": \"float\", \"redop\": "
	"\"sum\",\n"
	"  \"root\": \"    -1\", \"out_of_place\": null, \"in_place\": {\"time\": 20.0,\n"
	"   \"alg_bw\": 50.0, \"bus_bw\": 37.5, \"nwrong\": null}},\n"
	"  {\"size\": 3000000, \"count\": 1, \"type\": \"float\", \"redop\": \"sum\",\n"
	"  \"out_of_place\": {\"time\": 40.0, \"alg_bw\": 75.0, \"bus_bw\": 56.25,\n"
	"   \"nwrong\": 0.0}}], \"out_of_bounds\": {\"count\": 0, \"okay\": \"true\"},\n"
	" \"end_time\": \"x\"}";

/* Two sockets; on each a switch with two GPUs and an adapter. */
#define GPU(bus, dev, body)                                                                        \
	"<pci busid=\"" bus "\" class=\"0x030200\" device=\"0x20b2\" link_speed=\"16.0 GT/s "      \
	"PCIe\" link_width=\"16\"><gpu dev=\"" #dev "\" sm=\"80\" rank=\"" #dev                    \
	"\" gdr=\"1\">" body "</gpu></pci>\n"
#define SWITCH(bus)                                                                                \
	"<pci busid=\"" bus "\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">"
#define CPU(node)                                                                                  \
	"<cpu numaid=\"" #node "\" affinity=\"ff\" arch=\"x86_64\" vendor=\"AuthenticAMD\" "       \
	"familyid=\"143\" modelid=\"49\">\n"
#define NIC(name, speed)                                                                           \
	"<pci busid=\"0000:99:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\">" \
	"<nic><net name=\"" name "\" dev=\"0\" speed=\"" #speed "\" port=\"1\"/></nic></pci>\n"
#define SWITCHED "<nvlink target=\"ffff:01:00.0\" count=\"12\" tclass=\"0x068000\"/>"
#define NODE(link)                                                                                 \
	"<!-- a comment -->\n<system version=\"1\">\n" CPU(0) SWITCH("0000:01:00.0")               \
		GPU("0000:02:00.0", 0, link) GPU("0000:03:00.0", 1, link)                          \
			NIC("mlx5_0", 200000) "</pci></cpu>\n" CPU(1) SWITCH("0000:81:00.0")       \
				GPU("0000:82:00.0", 2, link) GPU("0000:83:00.0", 3, link)          \
					NIC("mlx5_1", 200000)                                      \
						NIC("eth0", 10000) "</pci></cpu></system>\n"

static const char switched_xml[] = NODE(SWITCHED);
static const char pcie_xml[] = NODE("");

static const char matrix[] =
	"\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA "
	"ID\033[0m\n"
	"GPU0\t X \tNV12\tNV12\tNV12\tPXB\t0-23,48-71\t0\t\tN/A\n"
	"GPU1\tNV12\t X \tNV12\tNV12\tNODE\t0-23,48-71\t0\t\tN/A\n"
	"GPU2\tNV12\tNV12\t X \tNV12\tSYS\t24-47,72-95\t1\t\tN/A\n"
	"GPU3\tNV12\tNV12\tNV12\t X \tSYS\t24-47,72-95\t1\t\tN/A\n"
	"NIC0\tPXB\tNODE\tSYS\tSYS\t X \t\t\t\t\n\n"
	"Legend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_2\n";
/* Pasted with blanks; an old driver has no NUMA column. */
static const char old_matrix[] = "$ nvidia-smi topo -m\n"
				 "      GPU0  GPU1  CPU Affinity\n"
				 "GPU0   X    SYS   0-13\n"
				 "GPU1  SYS    X    14-27\n";

static const char slurm[] = "SLURM_JOB_NODELIST=gpu[001-002,007],login[1-2]x3\nSLURM_NNODES=5\n"
			    "SLURM_NTASKS=5\nSLURM_GPUS_ON_NODE=4\nSECRET_TOKEN=abc\n";
static const char torchrun[] = "export LOCAL_WORLD_SIZE=8\nexport WORLD_SIZE=32\n";
static const char hosts[] = "# two nodes\nworker-1 slots=4 max_slots=4\n\nworker-2 slots=4\n";

struct outcome {
	struct topology *topology;
	struct error error;
	const char *const *notes;
	int n_notes;
};

static struct outcome run(struct arena *arena, const struct topology_import_options *options,
	const char *const *texts)
{
	static const struct topology_import_options none;
	struct topology_import *import =
		topology_import_new(arena, options != NULL ? options : &none);
	struct outcome o = {0};
	bool ok = true;

	for (int i = 0; ok && texts[i] != NULL; i++)
		ok = topology_import_add(import, arena_printf(arena, "dir/t%d", i), texts[i],
			strlen(texts[i]), &o.error);
	ok = ok && topology_import_finish(import, "new", &o.topology, &o.error);
	o.n_notes = topology_import_notes(import, &o.notes);
	assert_true(ok == (o.error.message[0] == '\0'));
	if (!ok)
		o.topology = NULL;
	return o;
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *origin(const struct topology *t, const char *key)
{
	for (int i = 0; i < t->n_provenance; i++)
		if (strcmp(t->provenance[i].key, key) == 0)
			return t->provenance[i].text;
	return "";
}

static struct topology *read(struct arena *arena, const struct topology_import_options *options,
	const char *const *texts)
{
	struct outcome o = run(arena, options, texts);

	if (o.topology == NULL)
		fail_msg("%s", o.error.message);
	return o.topology;
}

static void assert_near(double got, double expected)
{
	if (!(fabs(got - expected) <= 1e-9 * fabs(expected)))
		fail_msg("expected %.12g, got %.12g", expected, got);
}

/* The measured rows, and one between. */
static void test_log(void **state)
{
	static const struct {
		int64_t bytes;
		double us;
	} rows[] = {{1048576, 100}, {2097152, 150}, {3145728, 200}, {4194304, 250}, {8388608, 700}};
	struct arena arena = {0};
	struct topology *t = read(&arena, NULL, TEXTS(all_gather_log));

	(void)state;
	assert_int_equal(t->nodes, 2);
	assert_int_equal(t->devices_per_node, 2);
	assert_string_equal(t->device.name, "A100-SXM4-80GB");
	assert_non_null(strstr(origin(t, "network.kind"), "assumed: like dgx-a100-80gb"));
	for (int i = 0; i < COUNT_OF(rows); i++) {
		const struct calibration_collective *p = calibration_find(
			&t->calibration, COLLECTIVE_ALL_GATHER, 4, 2, rows[i].bytes);

		assert_non_null(p);
		assert_near(p->latency + (double)rows[i].bytes / p->bandwidth, rows[i].us * 1e-6);
	}
	/* A straight run is one piece; then 4 to 8 MiB grows faster than the size. */
	assert_int_equal(t->calibration.n_collectives, 3);
	assert_null(calibration_find(&t->calibration, COLLECTIVE_ALL_REDUCE, 4, 2, 1 << 20));
	arena_finish(&arena);
}

/* What the driver calls a GPU leads to the node of the catalogue that holds it. */
static void test_printed_names(void **state)
{
	static const struct {
		const char *printed, *name;
	} cases[] = {{"NVIDIA B200", "B200-SXM-180GB"}, {"NVIDIA B300 SXM6 AC", "B300-SXM-288GB"},
		{"NVIDIA GB200", "GB200-186GB"}, {"NVIDIA GB300", "GB300-288GB"},
		{"NVIDIA H200", "H200-SXM-141GB"}};
	static const char h100[] = "NVIDIA H100 80GB HBM3";
	const struct topology_import_options one = {.nodes = 1};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const char *at = strstr(gather_json, h100);
		const char *log = arena_printf(&arena, "%.*s%s%s", (int)(at - gather_json),
			gather_json, cases[i].printed, at + strlen(h100));

		assert_string_equal(read(&arena, &one, TEXTS(log))->device.name, cases[i].name);
	}
	arena_finish(&arena);
}

static void test_bare_log(void **state)
{
	struct arena arena = {0};
	const struct topology_import_options options = {.gpu = "H100-SXM5-80GB", .nodes = 1};
	struct outcome o = run(&arena, &options, TEXTS(all_reduce_log));

	(void)state;
	assert_non_null(o.topology);
	assert_int_equal(o.topology->devices_per_node, 8); /* 2(n-1)/n = 1.75 */
	assert_int_equal(o.n_notes, 4); /* the collective, the footer, the dots, the ranks */
	const struct calibration_collective *p =
		calibration_find(&o.topology->calibration, COLLECTIVE_ALL_REDUCE, 8, 1, 1073741824);
	assert_near(p->latency + 1073741824 / p->bandwidth, 6426.3e-6);
	arena_finish(&arena);
}

/* Sweeps of several levels stand side by side. */
static void test_levels(void **state)
{
	struct arena arena = {0};
	const struct topology_import_options options = {.gpu = "H100-SXM5-80GB", .nodes = 1};
	struct topology *t = read(&arena, &options, TEXTS(gather_json, all_reduce_log));
	const struct calibration *c = &t->calibration;

	(void)state;
	assert_non_null(calibration_find(c, COLLECTIVE_REDUCE_SCATTER, 4, 1, 2000000));
	assert_non_null(calibration_find(c, COLLECTIVE_ALL_REDUCE, 8, 1, 2000000));
	assert_int_equal(t->devices_per_node, 8);
	assert_null(strstr(c->provenance, "dir/"));
	/* 20 us at 1 MB, 40 us at 3 MB */
	const struct calibration_collective *p =
		calibration_find(c, COLLECTIVE_REDUCE_SCATTER, 4, 1, 2000000);
	assert_near(p->latency + 2000000 / p->bandwidth, 30e-6);
	arena_finish(&arena);
}

static void test_xml(void **state)
{
	struct arena arena = {0};
	struct outcome o = run(&arena, NULL, TEXTS(switched_xml));

	(void)state;
	if (o.error.code == EXIT_CODE_ENVIRONMENT) /* built without expat */
		skip();
	struct topology *t = read(&arena, NULL, TEXTS(switched_xml, hosts));
	assert_int_equal(t->nodes, 2);
	assert_int_equal(t->devices_per_node, 4);
	assert_int_equal(t->fabric.kind, FABRIC_NVSWITCH);
	assert_near(t->fabric.bandwidth, 240e9); /* 12 x 20 GB/s, sm80 */
	assert_int_equal(t->network.kind, NETWORK_INFINIBAND);
	assert_int_equal(t->network.nics_per_node, 2); /* the slow one is for other things */
	assert_near(t->network.nic_bandwidth, 24e9);   /* 200 Gbit/s on PCIe 4.0 x16 */
	assert_near(t->host.pcie_bandwidth, 24e9);
	assert_int_equal(t->host.devices_per_root, 2);
	assert_int_equal(t->host.cpu, CPU_AMD);
	assert_string_equal(origin(t, "nodes"), "host file");
	assert_non_null(strstr(origin(t, "fabric.bandwidth"), "12 NVLinks"));
	assert_non_null(strstr(origin(t, "host.memory"), "assumed"));
	/* Without NVLink a ring crosses the sockets: 16 GB/s between AMD's. */
	t = read(&arena, NULL, TEXTS(pcie_xml));
	assert_int_equal(t->fabric.kind, FABRIC_PCIE);
	assert_near(t->fabric.bandwidth, 16e9);
	assert_non_null(strstr(origin(t, "fabric.bandwidth"), "SYS"));
	arena_finish(&arena);
}

static void test_matrix(void **state)
{
	struct arena arena = {0};
	const struct topology_import_options a100 = {.gpu = "A100-SXM4-80GB"};
	const struct topology_import_options h100 = {.gpu = "H100-SXM5-80GB"};
	const struct topology_import_options v100 = {.gpu = "V100-SXM2-32GB"};
	struct topology *t = read(&arena, &a100, TEXTS(matrix));

	(void)state;
	assert_int_equal(t->devices_per_node, 4);
	assert_int_equal(t->fabric.kind, FABRIC_NVSWITCH); /* 36 links would be too many */
	assert_near(t->fabric.bandwidth, 240e9);
	assert_int_equal(t->network.nics_per_node, 1);
	/* As many links as that GPU has; then fewer, which a note tells. */
	assert_int_equal(run(&arena, &a100, TEXTS(matrix)).n_notes, 1); /* the NICs */
	struct outcome o = run(&arena, &h100, TEXTS(matrix));
	assert_int_equal(o.n_notes, 2);
	assert_non_null(strstr(o.notes[1], "12 NVLinks"));
	assert_non_null(strstr(o.notes[1], "H100-SXM5-80GB has 18 in dgx-h100"));
	t = read(&arena, &v100, TEXTS(old_matrix));
	assert_int_equal(t->fabric.kind, FABRIC_PCIE);
	assert_near(t->fabric.bandwidth, 12e9 * 5 / 6); /* like a DGX-1: Intel, PCIe 3.0 */
	assert_non_null(strstr(origin(t, "fabric.bandwidth"), "assumed"));
	arena_finish(&arena);
}

static void test_launch(void **state)
{
	struct arena arena = {0};
	const struct topology_import_options a100 = {.gpu = "A100-SXM4-80GB"};
	struct topology *t = read(&arena, &a100, TEXTS(slurm));

	(void)state;
	assert_int_equal(t->nodes, 5);
	assert_int_equal(t->devices_per_node, 4);
	t = read(&arena, &a100, TEXTS(torchrun));
	assert_int_equal(t->nodes, 4);
	assert_int_equal(t->devices_per_node, 8);
	t = read(&arena, &a100,
		TEXTS("SLURM_JOB_NODELIST=a[1-3],b[01-02,09]c,d\n"
		      "SLURM_GPUS_ON_NODE=2\n"));
	assert_int_equal(t->nodes, 7);
	t = read(&arena, &a100, TEXTS("node001:8\nnode002:8\nnode003:8\n"));
	assert_int_equal(topology_devices(t), 24);
	arena_finish(&arena);
}

/* What is written is read back the same, with its provenance. */
static void test_round_trip(void **state)
{
	struct arena arena = {0};
	struct topology *t = read(&arena, NULL, TEXTS(all_gather_log, hosts + 12)), *again;
	struct error error = {0};
	struct text text = {0}, second = {0};

	(void)state;
	topology_print(t, WRITER_YAML, &text);
	if (!topology_parse(
		    &arena, "f", text_string(&text), strlen(text_string(&text)), &again, &error))
		fail_msg("%s", error.message);
	topology_print(again, WRITER_YAML, &second);
	assert_string_equal(text_string(&text), text_string(&second));
	assert_int_equal(again->n_provenance, t->n_provenance);
	text_finish(&text);
	text_finish(&second);
	arena_finish(&arena);
}

static const struct {
	const char *texts[3];
	struct topology_import_options options;
	enum exit_code code;
	const char *part; /* of the message */
} bad[] = {
	{{"hello\n"}, {0}, EXIT_CODE_INPUT, "dir/t0:1:1: nothing that is known"},
	{{""}, {0}, EXIT_CODE_INPUT, "nothing that is known"},
	{{matrix}, {0}, EXIT_CODE_USAGE, "which GPU this is: add --gpu-name NAME"},
	{{matrix}, {.gpu = "A1"}, EXIT_CODE_USAGE, "--gpu-name A1: not in the catalogue"},
	{{matrix, hosts, "a slots=8\n"}, {.gpu = "A100-SXM4-80GB"}, EXIT_CODE_INPUT,
		"dir/t2: nodes is 1 here, but 2 in dir/t1"},
	{{matrix, "a slots=8\n"}, {.gpu = "A100-SXM4-80GB"}, EXIT_CODE_INPUT,
		"devices_per_node is 8 here, but 4 in dir/t0"},
	{{matrix}, {.gpu = "A100-SXM4-80GB", .network = "infiniband:8"}, EXIT_CODE_USAGE,
		"KIND:NICSxBANDWIDTH"},
	{{matrix}, {.gpu = "A100-SXM4-80GB", .nodes = 2, .network = "none"}, EXIT_CODE_INPUT, ""},
	{{"\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV3\t X \n"}, {0}, EXIT_CODE_INPUT,
		"reach each other differently"},
	{{"\tGPU0\tGPU1\nGPU0\t X \tNV2\n"}, {0}, EXIT_CODE_INPUT,
		"expected 2 rows of GPUs, got 1"},
	{{"\tGPU0\tGPU1\nGPU0\t X \tQPI\nGPU1\tQPI\t X \n"}, {0}, EXIT_CODE_INPUT,
		"dir/t0:2:1: expected NV#, PIX, PXB, PHB, NODE or SYS, got \"QPI\""},
	{{"\tGPU0\tGPU1\nGPU0\t X \nGPU1\tSYS\t X \n"}, {0}, EXIT_CODE_INPUT, "cut off?"},
	{{"a slots=8\nb slots=4\n"}, {0}, EXIT_CODE_INPUT, "expected equal nodes"},
	{{"a slots=8\nrm -rf /\n"}, {0}, EXIT_CODE_INPUT, "dir/t0:2:1: expected HOST slots=N"},
	{{"WORLD_SIZE=0\n"}, {0}, EXIT_CODE_INPUT, "WORLD_SIZE: expected a whole number"},
	{{"SLURM_JOB_NODELIST=g[1-99999999999]\n"}, {0}, EXIT_CODE_INPUT, "a list of nodes"},
	{{"SLURM_JOB_NODELIST=g[3-1]\n"}, {0}, EXIT_CODE_INPUT, "a list of nodes"},
	{{"WORLD_SIZE=16\nLOCAL_WORLD_SIZE=8\nGROUP_WORLD_SIZE=3\n"}, {0}, EXIT_CODE_INPUT,
		"WORLD_SIZE says 16 ranks, but there are 3 nodes of 8"},
	{{"# Avg bus bandwidth    : 230.1\n"}, {0}, EXIT_CODE_INPUT, "no rows of nccl-tests"},
	{{all_reduce_log}, {.gpu = "H100-SXM5-80GB"}, EXIT_CODE_USAGE, "add --nodes N"},
	{{all_reduce_log}, {.gpu = "H100-SXM5-80GB", .devices = 16, .nodes = 2}, EXIT_CODE_INPUT,
		"16 ranks, but its bus and algorithm bandwidths are those of 8 to 8"},
	{{all_gather_log}, {.gpu = "H100-SXM5-80GB"}, EXIT_CODE_INPUT,
		"--gpu-name H100-SXM5-80GB, but dir/t0 says A100-SXM4-80GB"},
	{{"# nThread 1\n# Collective test starting: alltoall_perf\n"}, {0}, EXIT_CODE_INPUT,
		"dir/t0:2:1: a test of \"alltoall_perf\", expected all_gather"},
	{{"# busbw\n 1024 256 float sum -1 10.0 1.0 1.75 3 10.0 1.0 1.75 0\n"}, {0},
		EXIT_CODE_INPUT, "dir/t0:2:1: 3 wrong values"},
	{{"# busbw\n 1024 256 float none -1 10.0 1.02 0.77 0\n"}, {0}, EXIT_CODE_USAGE,
		"add --collective"},
	{{"# busbw\n 1024 256 float sum\n 2048\n"}, {0}, EXIT_CODE_INPUT,
		"dir/t0:2:1: expected size count type"},
	{{"# busbw\n 1024 256 float sum -1 -5.0 1.0 1.75 0\n"}, {0}, EXIT_CODE_INPUT,
		"1 PiB in 1 ns or more"},
	{{"{\"nccl_version\": 22809, \"config\": {}, \"results\": [{\"size\": -13000000, "
	  "\"redop\": "
	  "\"sum\", \"out_of_place\": {\"time\": 40.0}}]}\n"},
		{0}, EXIT_CODE_INPUT, "got -13000000 bytes"},
	{{"# busbw\n 1024 256 float sum -1 1e-320 1.0 1.75 0\n"}, {0}, EXIT_CODE_INPUT,
		"1 PiB in 1 ns or more"},
	{{"# busbw\n 1024 256 float sum -1 5 1 1.75 0\n# Out of bounds values : 7 FAILED\n"}, {0},
		EXIT_CODE_INPUT, "FAILED its check"},
	{{"{\"nccl_version\": 1}"}, {0}, EXIT_CODE_INPUT, "missing key \"results\""},
	{{"{\"nccl_version\": 1, \"results\": [{\"size\": 1"}, {0}, EXIT_CODE_INPUT, "dir/t0:1:"},
};

static void test_messages(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct outcome o = run(&arena, &bad[i].options, bad[i].texts);

		if (o.topology != NULL || strstr(o.error.message, bad[i].part) == NULL)
			fail_msg("case %d: expected ...%s..., got \"%s\"", i, bad[i].part,
				o.error.message);
		if (bad[i].part[0] != '\0')
			assert_int_equal(o.error.code, bad[i].code);
	}
	arena_finish(&arena);
}

static const struct {
	const char *text, *part;
} bad_xml[] = {
	{"<system version=\"2\"/>", "expected version 1, got \"2\""},
	{"<graphs version=\"1\"/>", "NCCL_GRAPH_DUMP_FILE"},
	{"<system version=\"1\"><cpu>", "is it cut off?"},
	{"<svg/>", "expected <system> around everything"},
	{"<system version=\"1\"><cpu familyid=\"9999999999999\"/></system>", "familyid"},
	{"<system version=\"1\"><gpu/></system>", "<gpu> inside of <pci>"},
	{"<!DOCTYPE a [<!ENTITY b \"c\">]><system version=\"1\"/>", "no DOCTYPE"},
	{"<system version=\"1\"><pci class=\"0x030200\" link_width=\"-1\"/></system>",
		"link_width"},
};

static void test_xml_messages(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(bad_xml); i++) {
		struct outcome o = run(&arena, NULL, TEXTS(bad_xml[i].text));

		if (o.error.code == EXIT_CODE_ENVIRONMENT)
			skip();
		assert_int_equal(o.error.code, EXIT_CODE_INPUT);
		if (strstr(o.error.message, bad_xml[i].part) == NULL)
			fail_msg("expected ...%s..., got \"%s\"", bad_xml[i].part, o.error.message);
	}
	arena_finish(&arena);
}

/* Elements inside one another, and one after the other, without end. */
static void test_huge(void **state)
{
	static const char *const parts[] = {"<pci>", "<cpu/>", "<pci a=\"b\"/>", "<net/>"};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(parts); i++) {
		struct text text = {0};
		struct outcome o;

		text_add(&text, "<system version=\"1\">");
		for (int k = 0; k < 100000; k++)
			text_add(&text, parts[i]);
		o = run(&arena, NULL, TEXTS(text_string(&text)));
		assert_null(o.topology);
		assert_null(strchr(o.error.message, '\n'));
		text_finish(&text);
	}
	arena_finish(&arena);
}

/* Every prefix and changed bytes of every text: a topology or one line, never a crash. */
static void test_damaged(void **state)
{
	static const char *const whole[] = {all_gather_log, all_reduce_log, gather_json,
		switched_xml, pcie_xml, matrix, old_matrix, slurm, torchrun, hosts};
	const struct topology_import_options options = {.gpu = "A100-SXM4-80GB", .nodes = 1};
	struct arena arena = {0};
	int errors = 0;

	(void)state;
	for (int i = 0; i < COUNT_OF(whole); i++)
		for (size_t at = 0; at < strlen(whole[i]); at += 5) {
			struct arena scratch = {0};
			char *changed = arena_strdup(&scratch, whole[i]);
			const char *cut = arena_strndup(&scratch, whole[i], at);
			struct outcome o;

			changed[at] ^= (char)(1 << (at % 7));
			o = run(&scratch, &options, TEXTS(changed));
			assert_null(strchr(o.error.message, '\n'));
			errors += o.topology == NULL;
			o = run(&scratch, &options, TEXTS(cut));
			assert_null(strchr(o.error.message, '\n'));
			errors += o.topology == NULL;
			arena_finish(&scratch);
		}
	assert_true(errors > 100);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_printed_names),
		cmocka_unit_test(test_bare_log),
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_xml),
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_launch),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_xml_messages),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
