/* Presets by the names that Hugging Face and people have for them. */
#include <ctype.h>
#include <string.h>

#include "models/models.h"

/* What a name may begin or end with without another architecture. */
static const char *const beginnings[] = {"meta-"};
static const char *const endings[] = {
	"-hf", "-instruct", "-chat", "-base", "-v0.1", "-v0.2", "-chat-hf", "-instruct-v0.1"};

static const struct {
	const char *typed, *preset;
} named[] = {
	{"gpt2", "gpt2-124m"},
	{"gpt2-small", "gpt2-124m"},
	{"gpt2-medium", "gpt2-355m"},
	{"gpt2-large", "gpt2-774m"},
	{"gpt2-xl", "gpt2-1.5b"},
	{"gpt3", "gpt3-175b"},
};

/* Letters, digits and points are equal but for capitals: "Llama2_7B" is "llama-2-7b". */
static bool same(const char *preset, const char *typed, size_t length)
{
	const char *end = typed + length;

	for (;; preset++, typed++) {
		while (*preset == '-')
			preset++;
		while (typed < end && (*typed == '-' || *typed == '_' || *typed == ' '))
			typed++;
		if (*preset == '\0' || typed >= end)
			return *preset == '\0' && typed >= end;
		if (*preset != tolower((unsigned char)*typed))
			return false;
	}
}

static const char *find(const char *typed, size_t length)
{
	for (int i = 0; i < n_model_presets; i++)
		if (same(model_presets[i].name, typed, length))
			return model_presets[i].name;
	for (int i = 0; i < COUNT_OF(named); i++)
		if (same(named[i].typed, typed, length))
			return named[i].preset;
	return NULL;
}

static bool begins(const char *typed, const char *with, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (tolower((unsigned char)typed[i]) != with[i])
			return false;
	return true;
}

const char *model_preset_name(const char *typed)
{
	const char *slash = strrchr(typed, '/');

	typed = slash != NULL ? slash + 1 : typed;
	size_t length = strlen(typed);
	const char *found = find(typed, length);
	for (int i = 0; found == NULL && i < COUNT_OF(beginnings); i++) {
		size_t n = strlen(beginnings[i]);
		if (length > n && begins(typed, beginnings[i], n)) {
			typed += n;
			length -= n;
			found = find(typed, length);
		}
	}
	for (int i = 0; found == NULL && i < COUNT_OF(endings); i++) {
		size_t n = strlen(endings[i]);
		if (length > n && begins(typed + length - n, endings[i], n))
			found = find(typed, length - n);
	}
	return found;
}
