#include "cli/help/help.h"

#include "kernels/cuda/cuda.h"
#include "kernels/kernels.h"

static void add_part(struct text *text, const char *name, bool built_in, const char *without)
{
	text_printf(text, "  %-20s %s\n", name, built_in ? "built in" : without);
}

static void add_kernels(struct text *text)
{
	const struct kernels *const *tables = kernels_all();

	for (int i = 0; tables[i] != NULL; i++)
		text_printf(text, "  kernels %-12s %s\n", tables[i]->name, tables[i]->library);
}

void version_print(struct text *text)
{
	text_add(text, "shardplan " SHARDPLAN_VERSION "\n");
	add_kernels(text);
	add_part(text, "hwloc", HAVE_HWLOC,
		"not built in: `local` is described by the kernel's files");
	add_part(text, "GLPK", HAVE_GLPK, "not built in: branch and bound plans alone");
	add_part(text, "libsodium", HAVE_SODIUM,
		"not built in: ranks cannot prove that they know SHARDPLAN_SECRET");
	add_part(text, "transport shm", true, "");
	add_part(text, "transport tcp", true, ""); /* started by torchrun */
	add_part(
		text, "transport mpi", HAVE_MPI, "not built in: several machines by torchrun only");
	text_printf(text, "  %-20s %s\n", "CUDA kernels",
		cuda_image_bytes > 0 ? cuda_image_compiler : "not built in: `train` runs on CPUs");
	text_printf(
		text, "  %-20s %s\n", "CUDA, NCCL", "looked for when --device cuda asks for them");
	text_add(text, "  compiler             " __VERSION__ "\n");
	text_add(text,
		HAVE_GLPK ? "The sources are Apache-2.0. This binary is linked with GLPK and is\n"
			    "GPL-3.0-or-later as a whole.\n"
			  : "Apache-2.0. (A binary linked with GLPK is GPL-3.0-or-later as a "
			    "whole.)\n");
}
