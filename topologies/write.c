/* struct topology -> YAML or JSON: the inverse of read.c, bit for bit. */
#include "topologies/topologies.h"

static void write_section(
	const char *key, const struct field *fields, const void *object, struct writer *writer)
{
	writer_begin_map(writer, key);
	fields_write(fields, object, writer);
	writer_end_map(writer);
}

void topology_write(const struct topology *topology, struct writer *writer)
{
	const struct overheads none = {0};

	fields_write(topology_fields, topology, writer);
	write_section("device", device_fields, &topology->device, writer);
	write_section("fabric", fabric_fields, &topology->fabric, writer);
	write_section("network", network_fields, &topology->network, writer);
	write_section("host", host_fields, &topology->host, writer);
	if (!fields_equal(overheads_fields, &topology->overheads, &none))
		write_section("overheads", overheads_fields, &topology->overheads, writer);
	if (!calibration_is_empty(&topology->calibration)) {
		writer_begin_map(writer, "calibration");
		calibration_write(&topology->calibration, writer);
		writer_end_map(writer);
	}
	if (topology->n_provenance == 0)
		return;
	writer_begin_map(writer, "provenance");
	for (int i = 0; i < topology->n_provenance; i++)
		writer_string(writer, topology->provenance[i].key, topology->provenance[i].text);
	writer_end_map(writer);
}

void topology_print(const struct topology *topology, enum writer_format format, struct text *text)
{
	struct writer writer;

	writer_init(&writer, text, format);
	writer_string(&writer, "shardplan", "topology/1");
	topology_write(topology, &writer);
	writer_finish(&writer);
}
