/* What tools call a GPU, and what the catalogue calls it. */
#include <string.h>

#include "topologies/import/draft.h"

/* `printed`: the parts that stand in the name that the driver gives (nvidia-smi, nccl-tests).
 * `pci`: the device id of the PCI database (pci-ids.ucw.cz), 0 = none. `sm`: compute capability. */
static const struct gpu {
	const char *name;
	int sm;
	const char *printed[2];
	unsigned pci[3];
} gpus[] = {
	{"A100-SXM4-80GB", 80, {"A100-SXM4-80GB", "A100-SXM-80GB"}, {0x20b2}},
	{"A100-SXM4-40GB", 80, {"A100-SXM4-40GB", "A100-SXM-40GB"}, {0x20b0}},
	{"A100-PCIe-80GB", 80, {"A100 80GB PCIe", "A100-PCIE-80GB"}, {0x20b5}},
	{"A10G-24GB", 86, {"A10G"}, {0x2237}},
	{"B200-SXM-180GB", 100, {"NVIDIA B200"}, {0x2901}},
	{"GB200-186GB", 100, {"GB200"}, {0x2941}},
	{"B300-SXM-288GB", 103, {"NVIDIA B300"}, {0x3182}},
	{"GB300-288GB", 103, {"GB300"}, {0x31c2, 0x31c3}},
	{"H100-SXM5-80GB", 90, {"H100 80GB HBM3", "H100-SXM5-80GB"}, {0x2330}},
	{"H200-SXM-141GB", 90, {"NVIDIA H200", "H200-SXM"}, {0x2335}},
	{"L40S-48GB", 89, {"L40S"}, {0x26b9}},
	{"RTX-4090-24GB", 89, {"RTX 4090"}, {0x2684}},
	{"V100-SXM2-32GB", 70, {"V100-SXM2-32GB"}, {0x1db5, 0x1db8}},
	{"A800-SXM4-80GB", 80, {"A800-SXM4-80GB"}, {0x20f3}},
	{"H100-PCIe-80GB", 90, {"H100 PCIe", "H100-PCIe-80GB"}, {0x2331}},
	{"H800-SXM5-80GB", 90, {"NVIDIA H800"}, {0x2324}},
	{"MI300X-192GB", 0, {"MI300X"}, {0}},
	{"RTX-3090-24GB", 86, {"RTX 3090"}, {0x2204}},
	{"RTX-5090-32GB", 120, {"RTX 5090"}, {0x2b85}},
	{"RTX-A6000-48GB", 86, {"RTX A6000"}, {0x2230}},
	{"T4-16GB", 75, {"Tesla T4"}, {0x1eb8}},
};

int gpu_sm(const char *gpu)
{
	for (int i = 0; i < COUNT_OF(gpus); i++)
		if (strcmp(gpus[i].name, gpu) == 0)
			return gpus[i].sm;
	return 0;
}

const char *gpu_of_pci_device(unsigned device)
{
	for (int i = 0; i < COUNT_OF(gpus); i++)
		for (int k = 0; k < COUNT_OF(gpus[i].pci); k++)
			if (gpus[i].pci[k] == device && device != 0)
				return gpus[i].name;
	return NULL;
}

static const char *find_printed(const char *printed)
{
	for (int i = 0; i < COUNT_OF(gpus); i++) {
		if (strcmp(printed, gpus[i].name) == 0)
			return gpus[i].name;
		for (int k = 0; k < COUNT_OF(gpus[i].printed) && gpus[i].printed[k] != NULL; k++)
			if (strstr(printed, gpus[i].printed[k]) != NULL)
				return gpus[i].name;
	}
	return NULL;
}

bool draft_set_gpu(
	struct topology_import *import, const char *printed, const char *in, struct error *error)
{
	const char *gpu = find_printed(printed);

	if (gpu == NULL) {
		import->unknown_gpu = arena_strdup(import->arena, printed);
		return true;
	}
	if (import->gpu != NULL && strcmp(import->gpu, gpu) != 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: the GPU is %s here, but %s says %s; "
			"expected texts of one machine with equal GPUs",
			in, gpu, import->gpu_given_by, import->gpu);
	import->gpu = gpu;
	import->gpu_given_by = in;
	return true;
}
