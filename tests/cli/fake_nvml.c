/* A fake libnvidia-ml.so.1: four A100 on NVSwitches, or the machine that FAKE_NVML names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci {
	char legacy_bus_id[16];
	unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
/* A device's is the place of its number. */
static char handles[8];

int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned length);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci);
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level);
struct memory {
	unsigned version;
	unsigned long long total, reserved, available, used;
};
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory);

static int is(const char *what)
{
	const char *fake = getenv("FAKE_NVML");

	return fake != NULL && strcmp(fake, what) == 0;
}

int nvmlInit_v2(void)
{
	return is("broken") ? 999 : 0;
}

int nvmlShutdown(void)
{
	return 0;
}

/* A device's is the place of its number. */
static char handles[8];

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = is("empty") ? 0 : 4;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = &handles[index + 1];
	return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
	(void)device;
	snprintf(name, length, "%s", is("pcie") ? "NVIDIA L40S" : "NVIDIA A100-SXM4-80GB");
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
	snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0",
		(unsigned)((char *)device - handles));
	return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
	(void)device;
	*active = link < 12;
	return is("pcie") ? 3 : 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci)
{
	(void)device;
	snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:C%u:00.0", link % 6);
	return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
	*level = ((char *)a - (char *)b) % 2 == 0 ? 50 : 30;
	return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
	*device = &handles[1];
	return strncmp(uuid, "GPU-", 4) != 0 || strlen(uuid) != 40;
}

/* FAKE_NVML_USED bytes. */
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory)
{
	const char *used = getenv("FAKE_NVML_USED");

	if (device == NULL || used == NULL || memory->version != (sizeof(*memory) | 2u << 24))
		return 3;
	memory->used = strtoull(used, NULL, 10);
	return 0;
}
