/* The table of targets: an input format a row. */
#include <stdio.h>
#include <stdlib.h>

#include "executor/checkpoints/checkpoints.h"
#include "frameworks/frameworks.h"
#include "fuzz/fuzz.h"
#include "fuzz/manifest.h"
#include "models/models.h"
#include "schedule/documents/documents.h"
#include "schedule/traces/traces.h"
#include "topologies/import/import.h"

#define READER                                                                                     \
	const struct target *target, struct arena *arena, const char *text, size_t length,         \
		struct text *printed, struct error *error

/* --- our own documents --- */

static bool read_topology(READER)
{
	struct topology *topology;

	(void)target;
	if (!topology_parse(arena, INPUT_NAME, text, length, &topology, error))
		return false;
	struct text doubts = {0};
	topology_doubts(topology, arena, &doubts);
	bool ok = judge_lines(text_string(&doubts), error);
	text_finish(&doubts);
	topology_print(topology, WRITER_YAML, printed);
	return ok;
}

static bool read_model(READER)
{
	struct model *model;
	struct writer writer;

	(void)target;
	if (!model_parse(arena, INPUT_NAME, text, length, &model, error))
		return false;
	writer_init(&writer, printed, WRITER_YAML);
	writer_string(&writer, "shardplan", "model/1");
	model_write(model, &writer);
	writer_finish(&writer);
	return true;
}

static bool read_plan(READER)
{
	struct plan_file file;

	(void)target;
	if (!plan_file_parse(arena, INPUT_NAME, text, length, &file, error))
		return false;
	plan_file_write(&file, printed);
	return true;
}

static bool read_measurement(READER)
{
	const struct node *root = document_parse(arena, INPUT_NAME, text, length, 0, error);
	const struct node *map = node_get(root, "measurement");
	struct measurement measurement;
	struct writer writer;

	(void)target;
	if (root == NULL || (map == NULL && !node_error(root, error, "no measurement")) ||
		!measurement_read(arena, map, &measurement, error))
		return false;
	writer_init(&writer, printed, WRITER_JSON);
	writer_begin_map(&writer, "measurement");
	measurement_write(&measurement, &writer);
	writer_end_map(&writer);
	writer_finish(&writer);
	return true;
}

static void add_row(const struct csv_row *row, struct text *text)
{
	for (int i = 0; i < row->n_cells; i++)
		csv_add_cell(text, row->cells[i], i == 0);
	text_add_char(text, '\n');
}

static bool read_cases(READER)
{
	struct csv_table table;

	(void)target;
	if (!csv_read(arena, INPUT_NAME, text, length, &table, error))
		return false;
	add_row(&table.header, printed);
	for (int i = 0; i < table.n_rows; i++)
		add_row(&table.rows[i], printed);
	return true;
}

/* --- what other programs write --- */

static bool read_framework(READER)
{
	struct imported imported = {0};
	struct text words = {0};
	bool ok = import_config(arena, INPUT_NAME, text, length, NULL, NULL, 0, &imported, error);

	(void)target, (void)printed;
	struct model *model;
	if (ok)
		import_print(&imported, NULL, &words);
	/* Sizes that no model has are refused there. */
	if (ok && imported.model != NULL && imported.model[0] == '{')
		(void)model_parse(
			arena, INPUT_NAME, imported.model, strlen(imported.model), &model, NULL);
	text_finish(&words);
	for (int i = 0; ok && i < imported.n_notes; i++)
		ok = judge_lines(imported.notes[i].text, error);
	return ok;
}

/* The exports are of every framework, told apart by what is inside. */
static void make_exports(struct seeds *seeds)
{
	struct arena arena = {0};
	struct seeds plans = {.root = seeds->root};
	struct plan_file file;

	if (target_seeds(target_find("plan"), &plans) &&
		plan_file_parse(&arena, "plan", plans.of[plans.n - 1].text,
			plans.of[plans.n - 1].length, &file, NULL)) {
		for (int i = 0; i < n_export_targets; i++) {
			struct exported exported = {0};
			struct text text = {0};
			if (export_plan(export_targets[i], 0, &file, "plan", &arena, &exported,
				    &text, NULL))
				seeds_add(seeds, text.data, text.length);
			text_finish(&text);
		}
	}
	seeds_finish(&plans);
	arena_finish(&arena);
}

static bool import_machine(const struct topology_import_options *options, struct arena *arena,
	const char *text, size_t length, struct topology **topology, struct error *error)
{
	struct topology_import *import = topology_import_new(arena, options);
	const char *const *notes;

	if (!topology_import_add(import, INPUT_NAME, text, length, error) ||
		!topology_import_finish(import, "imported", topology, error))
		return false;
	for (int i = topology_import_notes(import, &notes) - 1; i >= 0; i--)
		if (!judge_lines(notes[i], error))
			return false;
	return true;
}

/* Where the text does not say how many GPUs there are, once more with options that do. */
static bool read_machine(READER)
{
	static const struct topology_import_options bare = {.gpu = "A100-SXM4-80GB",
							    .collective = "all_gather"},
						    full = {.gpu = "A100-SXM4-80GB",
							    .collective = "all_gather",
							    .nodes = 1,
							    .devices = 4};
	struct topology *topology;
	struct error first = {0};

	(void)target;
	if (!import_machine(&bare, arena, text, length, &topology, &first)) {
		if (first.code != EXIT_CODE_USAGE)
			return error_set(error, first.code, "%s", first.message);
		if (!import_machine(&full, arena, text, length, &topology, error))
			return false;
	}
	topology_print(topology, WRITER_YAML, printed);
	return true;
}

/* In two pieces, as a file arrives. */
static bool read_kineto(READER)
{
	struct kineto kineto;
	struct trace_facts facts;

	(void)target, (void)arena, (void)printed;
	kineto_init(&kineto, INPUT_NAME);
	bool ok = kineto_feed(&kineto, text, length / 2, error) &&
		  kineto_feed(&kineto, text + length / 2, length - length / 2, error) &&
		  kineto_end(&kineto, error);
	if (ok)
		kineto_facts(&kineto, &facts);
	kineto_finish(&kineto);
	return ok;
}

static bool read_log(READER)
{
	struct log_figures figures;

	(void)target, (void)arena, (void)length, (void)printed;
	return log_read(text, &figures) || error_set(error, EXIT_CODE_INPUT, INPUT_NAME ": no log");
}

static bool read_safetensors(READER)
{
	struct safetensors_entry *entries;
	int n;

	(void)target, (void)printed;
	return safetensors_read_header(arena, INPUT_NAME, text, length, &entries, &n, error);
}

static bool read_index(READER)
{
	const char **files;
	int64_t total;

	(void)target, (void)printed;
	return safetensors_read_index(arena, INPUT_NAME, text, length, &files, &total, error);
}

static bool read_manifest(READER)
{
	(void)target;
	return manifest_file_read(arena, text, length, printed, error);
}

/* --- the table --- */

#define SEEDS "fuzz/seeds/"
#define DATA  "tests/cli/data/"

const struct target targets[] = {
	{"topology", read_topology,
		DATA "box.yaml " DATA "laptop.yaml topologies/catalogue/dgx-h100.yaml " SEEDS
		     "measured.yaml",
		NULL,
		"calibration: device: fabric: network: host: overheads: nodes: memory: GB/s TFLOPS "
		"collectives: products: steps: kernels: provenance: from_bytes: nvswitch"},
	{"model", read_model,
		DATA "tiny.yaml " DATA "config.json models/presets/llama-3-8b.yaml "
		     "models/presets/mpt-125m.yaml",
		NULL,
		"family: layers: kv_heads: head_dim: adapters: experts: trainable: encoder: "
		"\"quantization_config\": \"text_config\": \"num_experts\": \"rope_scaling\": "
		"qwen2 "
		"mixtral gpt2 llama"},
	{"plan", read_plan, SEEDS "plan.yaml", NULL,
		"mesh: shard: replicate: wrap: block blocks:2 size:20000000 FULL_SHARD "
		"HYBRID_SHARD "
		"2xtrue+1xfalse 1xnone+2xfull strategy: runtime: libraries: fp32 bf16"},
	{"measurement", read_measurement, SEEDS "measured.json", NULL,
		"\"spans\": \"live\": \"timeline\": \"losses\": \"collectives\": \"time\":"},
	{"cases", read_cases, DATA "cases.csv " SEEDS "cases.csv", NULL,
		"\"\" \"\"\" ;; , =1 @ 'a"},
	{"any-framework", read_framework, NULL, make_exports,
		"fsdp_config: fsdp_version: zero_optimization --use-distributed-optimizer "
		"[parallelism] auto fully_shard( MixedPrecisionPolicy( def class return None"},
	{"machine", read_machine,
		SEEDS "nccl_topology.xml " SEEDS "smi_matrix.txt " SEEDS "smi_matrix_old.txt " SEEDS
		      "nccl_tests.log " SEEDS "nccl_tests_mpirun.log " SEEDS
		      "nccl_tests.json " SEEDS "slurm.env " SEEDS "torchrun.env " SEEDS "hostfile",
		NULL,
		"<pci <gpu <net <nic> <nvlink </pci> GPU0 NV12 SYS [001-999999] slots=4 &lt; GT/s",
		"topology"},
	{"kineto", read_kineto, SEEDS "kineto.json", NULL,
		"\"ts\": \"dur\": \"args\": \"Out_msg_nelems\": \"correlation\": ProfilerStep#9 "
		"NaN "
		"Infinity"},
	{"log", read_log, SEEDS "train.log", NULL, "step: tps: mfu: it/s s/it (ms): % 1,000"},
	{"safetensors", read_safetensors, SEEDS "safetensors.json", NULL,
		"\"F8_E4M3\" \"data_offsets\": \"shape\": \"dtype\": \"I64\" [0]"},
	{"safetensors-index", read_index, SEEDS "safetensors_index.json", NULL,
		"../a \"weight_map\": \"metadata\": \"total_size\":"},
	{"manifest", read_manifest, NULL, manifest_seeds,
		"\"begin\": \"end\": \"file\": \"offset\": \"pieces\": \"tensors\": \"arrays\":"},
};
const int n_targets = COUNT_OF(targets);

const struct target *target_find(const char *name)
{
	for (int i = 0; i < n_targets; i++)
		if (strcmp(targets[i].name, name) == 0)
			return &targets[i];
	for (int i = 0; i < n_planted_targets; i++)
		if (strcmp(planted_targets[i].name, name) == 0)
			return &planted_targets[i];
	return NULL;
}
