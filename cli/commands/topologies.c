/* `topologies`: lists the catalogue, shows, imports or fits a topology. */
#include "cli/commands/commands.h"
#include "cli/commands/fit_topology.h"
#include "cli/commands/import_topology.h"
#include "cli/commands/listing.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

/* Adds one direction of bandwidth: per device inside the node, and out of the node. */
static void add_line(const struct topology *topology, const char *name, struct text *text)
{
	char buffer[32];

	text_add(text, name);
	text_column(text, 20);
	text_printf(text, "%2lldx%-2lld ", (long long)topology->nodes,
		(long long)topology->devices_per_node);
	text_add(text, topology->device.name);
	text_column(text, 48);
	text_printf(text, "%10s", format_bytes(buffer, (double)topology->device.memory_bytes));
	text_printf(text, " %10s", format_bandwidth(buffer, topology->fabric.bandwidth));
	double network = (double)topology->network.nics_per_node * topology->network.nic_bandwidth;
	text_printf(text, " %10s\n",
		topology->network.kind != NETWORK_NONE ? format_bandwidth(buffer, network) : "-");
}

static void write_line(const struct topology *topology, const char *name, struct writer *writer)
{
	writer_begin_map(writer, NULL);
	writer_string(writer, "name", name);
	writer_int(writer, "nodes", topology->nodes);
	writer_int(writer, "devices_per_node", topology->devices_per_node);
	writer_string(writer, "device", topology->device.name);
	writer_int(writer, "memory_bytes", topology->device.memory_bytes);
	writer_string(writer, "fabric", fabric_kind_names[topology->fabric.kind]);
	writer_string(writer, "network", network_kind_names[topology->network.kind]);
	writer_end_map(writer);
}

static bool add(struct arena *arena, const char *name, struct writer *writer, struct text *text,
	struct error *error)
{
	struct topology *topology;

	if (!input_topology(arena, name, 0, &topology, error))
		return false;
	if (writer != NULL)
		write_line(topology, name, writer);
	else
		add_line(topology, name, text);
	return true;
}

static bool show(struct invocation *invocation, struct text *text, struct error *error)
{
	struct topology *topology;
	struct writer writer;

	if (!input_topology(
		    invocation->arena, invocation->arguments.operands[1], 0, &topology, error))
		return false;
	if (!argument_given(&invocation->arguments, "json")) {
		topology_print(topology, WRITER_YAML, text);
		return true;
	}
	document_begin(&writer, text, "shardplan/topology/1");
	topology_write(topology, &writer);
	writer_finish(&writer);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct listing listing = {
		.schema = "shardplan/topologies/1",
		.key = "topologies",
		.header = "name                devices                         memory  "
			  "in a node    network\n",
		.footer = "\nNxNAME is N such nodes; `local` is this machine. ",
		.embedded = topology_catalogue,
		.n_embedded = n_topology_catalogue,
		.add = add,
		.show = show,
		.import = topologies_import,
		.fit = topologies_fit,
		.expected = "`topologies list`, `topologies show NAME`, "
			    "`topologies import [FILE...]` or `topologies fit TOPOLOGY RUNS.csv`",
	};

	return listing_run(invocation, &listing, error);
}

const struct command command_topologies = {
	.name = "topologies",
	.summary = "list known machines, show or import one, fit one to runs",
	.operands = "[list | show NAME | import ... | fit ...]",
	.least = 0,
	.most = OPERANDS_MOST,
	.details = "`show` prints a topology file, which can be edited and used as TOPOLOGY. "
		   "`shardplan topologies show local` describes this machine. "
		   "`import FILE...` makes a topology file of what other tools print: "
		   "NCCL topology dumps (NCCL_TOPO_DUMP_FILE), `nvidia-smi topo -m`, "
		   "nccl-tests output (text or -J; each becomes a measured curve), "
		   "host files, the environment of a job (`env`), "
		   "and of this machine with its NVIDIA driver (the word `local`). "
		   "What they do not say comes from --gpu-name, "
		   "--network, --nodes, --gpus, which do without files too, "
		   "or from a machine of the catalogue that is alike (--like NAME), "
		   "and is marked as assumed. `fit TOPOLOGY RUNS...` estimates what links, "
		   "devices and hosts of a cluster really do from three runs or more, "
		   "and writes a topology with that. "
		   "RUNS is a table with the columns of `predict --cases` and step_time_s "
		   "or tokens_per_s_per_gpu, or PLAN.yaml followed by a measurement of `train`, "
		   "a trace or a log of it. Exit code 1: these runs tell nothing.",
	.examples = {"shardplan topologies", "shardplan topologies show 2xdgx-h100 > mine.yaml",
		"shardplan topologies import topo.xml gather.log -o cluster.yaml",
		"shardplan topologies import --gpu-name A100-SXM4-40GB --nodes 4 --gpus 32",
		"shardplan topologies fit cluster.yaml runs.csv -o fitted.yaml"},
	.run = run,
};
