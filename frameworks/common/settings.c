/* A plan through the keys of its target, to settings; and settings in each syntax. */
#include <assert.h>
#include <string.h>

#include "frameworks/common/words.h"
#include "frameworks/common/writing.h"

/* --- values --------------------------------------------------------------------------------- */

/* The file's word for a value of a knob; the value itself where there is none. Switches are on and
 * off to options, true and false to plans. */
static const char *word_of(struct arena *arena, const char *words, const char *value)
{
	const char *typed = strcmp(value, "true") == 0    ? "on"
			    : strcmp(value, "false") == 0 ? "off"
							  : value;
	struct word word;

	while (word_next(&words, &word)) {
		const char *right = arena_strndup(arena, word.right, word.right_length);
		if (strcmp(right, value) == 0 || strcmp(right, typed) == 0)
			return word_left(arena, &word);
	}
	return value;
}

static bool holds(const struct exporting *exporting, unsigned when)
{
	const struct plan *plan = exporting->plan;
	int stage = export_zero_stage(plan);
	/* In the order of enum key_when. */
	const bool properties[] = {false, export_is_sharded(exporting),
		!export_is_sharded(exporting), export_is_hybrid(exporting),
		plan->runtime == RUNTIME_PYTORCH_FSDP1, plan->runtime == RUNTIME_PYTORCH_FSDP2,
		stage > 0, stage == 1 || stage == 2, stage == 3, plan_offloads_any(plan),
		plan_offloads(plan, OFFLOAD_PARAMETERS), plan->compile, plan->grad_accum > 1,
		plan->clip > 0, plan->optimizer != OPTIMIZER_SGD, plan->param_dtype == DTYPE_BF16,
		plan->param_dtype == DTYPE_FP16, exporting->version == 0, exporting->version > 0};

	for (int i = 0; i < COUNT_OF(properties); i++) {
		if ((when >> i & 1) != 0 && !properties[i])
			return false;
	}
	return true;
}

/* NULL: nothing is written. */
static const char *text_of(struct exporting *exporting, const struct config_key *key)
{
	if (!holds(exporting, key->when) || key->kind == KEY_UNPRICED)
		return NULL;
	if (key->knob == KNOB_CLIP && exporting->exported->leaves_clip &&
		(key->when & EVEN_IF_LEFT) == 0)
		return NULL;
	if (key->value != NULL)
		return key->value(exporting);
	if (key->knob == KEY_GPUS)
		return arena_printf(
			exporting->arena, "%lld", (long long)topology_devices(exporting->topology));
	if (key->knob == NO_KNOB)
		return key->words;
	return word_of(exporting->arena, key->words,
		export_knob(exporting->plan, (enum knob_id)key->knob, exporting->arena));
}

static enum setting_type type_of(const char *text, bool is_string)
{
	int64_t integer;
	double number;

	if (is_string)
		return SETTING_STRING;
	if (strcmp(text, "null") == 0)
		return SETTING_NULL;
	if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
		return SETTING_BOOL;
	if (parse_int(text, &integer))
		return SETTING_INT;
	if (((text[0] >= '0' && text[0] <= '9') || text[0] == '-') && parse_number(text, &number))
		return SETTING_NUMBER;
	return SETTING_STRING;
}

/* A list has an element for each word. */
static void add_setting(
	struct exporting *exporting, struct setting setting, struct settings *settings)
{
	const char *rest = setting.text;
	bool list = strstr(setting.path, "[]") != NULL;

	while (rest != NULL) {
		size_t length = list ? strcspn(rest, " ") : strlen(rest);
		setting.text = arena_strndup(exporting->arena, rest, length);
		rest = rest[length] == ' ' ? rest + length + 1 : NULL;
		assert(settings->n < SETTINGS_MOST);
		settings->rows[settings->n++] = setting;
	}
}

void export_settings(struct exporting *exporting, struct settings *settings)
{
	settings->n = 0;
	for (const struct config_key *key = exporting->target->format->keys; key->path != NULL;
		key++) {
		const char *text = text_of(exporting, key);
		size_t length = strlen(key->path);
		if (text == NULL)
			continue;
		length -= length > 1 && key->path[length - 1] == '*';
		struct setting setting = {arena_strndup(exporting->arena, key->path, length), text,
			key->path[0] == '#' ? SETTING_COMMENT
					    : type_of(text, (key->when & AS_STRING) != 0)};
		add_setting(exporting, setting, settings);
	}
}

/* --- syntaxes -------------------------------------------------------------------------------- */

static void write_scalar(struct writer *writer, const char *key, const struct setting *setting)
{
	int64_t integer = 0;
	double number = 0;

	switch (setting->type) {
	case SETTING_STRING:
		writer_string(writer, key, setting->text);
		return;
	case SETTING_NULL:
		writer_string(writer, key, NULL);
		return;
	case SETTING_BOOL:
		writer_bool(writer, key, setting->text[0] == 't');
		return;
	case SETTING_INT:
		parse_int(setting->text, &integer);
		writer_int(writer, key, integer);
		return;
	case SETTING_NUMBER:
		parse_number(setting->text, &number);
		writer_number(writer, key, number);
		return;
	case SETTING_COMMENT:
		writer_comment(writer, setting->text);
		return;
	}
}

/* How much of the open maps a path is in: up to a '.' that both have. */
static size_t common_maps(const char *open, size_t length, const char *path)
{
	size_t common = 0;

	for (size_t i = 0; i < length && open[i] == path[i]; i++) {
		if (open[i] == '.')
			common = i + 1;
	}
	return common;
}

/* Maps are opened and closed as the paths demand. */
static void write_tree(
	struct exporting *exporting, const struct settings *settings, enum writer_format format)
{
	const char *open = "", *list = NULL;
	size_t length = 0;
	struct writer writer;

	writer_init(&writer, exporting->text, format);
	for (int i = 0; i < settings->n; i++) {
		const struct setting *setting = &settings->rows[i];
		if (list != NULL && strcmp(list, setting->path) != 0) {
			writer_end_list(&writer);
			list = NULL;
		}
		if (setting->type == SETTING_COMMENT) {
			write_scalar(&writer, NULL, setting);
			continue;
		}
		size_t common = common_maps(open, length, setting->path);
		for (; length > common; length--) {
			if (open[length - 1] == '.')
				writer_end_map(&writer);
		}
		const char *at = setting->path + common;
		for (const char *dot; (dot = strchr(at, '.')) != NULL; at = dot + 1)
			writer_begin_map(
				&writer, arena_strndup(exporting->arena, at, (size_t)(dot - at)));
		open = setting->path;
		length = (size_t)(at - open);
		bool element = strstr(at, "[]") != NULL;
		if (element && list == NULL) {
			writer_begin_list(
				&writer, arena_strndup(exporting->arena, at, strlen(at) - 2));
			list = setting->path;
		}
		write_scalar(&writer, element ? NULL : at, setting);
	}
	if (list != NULL)
		writer_end_list(&writer);
	for (; length > 0; length--) {
		if (open[length - 1] == '.')
			writer_end_map(&writer);
	}
	writer_finish(&writer);
}

static void write_toml(struct exporting *exporting, const struct settings *settings)
{
	struct text *text = exporting->text;
	size_t section = 0;

	for (int i = 0; i < settings->n; i++) {
		const struct setting *setting = &settings->rows[i];
		size_t length = strcspn(setting->path, ".");
		if (i == 0 || length != section ||
			strncmp(setting[-1].path, setting->path, length) != 0)
			text_printf(text, "\n[%.*s]\n", (int)length, setting->path);
		section = length;
		const char *key = setting->path + length + 1;
		const char *list = strstr(key, "[]"); /* of one element */
		text_printf(
			text, "%.*s = %s", (int)strcspn(key, "["), key, list != NULL ? "[" : "");
		if (setting->type == SETTING_STRING && strcmp(setting->text, "inf") != 0)
			json_escape(text, setting->text);
		else
			text_add(text, setting->text);
		text_add(text, list != NULL ? "]\n" : "\n");
	}
}

/* What is off by default needs no word when it is off. */
static void write_arguments(struct exporting *exporting, const struct settings *settings)
{
	for (int i = 0; i < settings->n; i++) {
		const struct setting *setting = &settings->rows[i];
		bool is_switch = setting->type == SETTING_BOOL;
		if (!is_switch)
			text_printf(exporting->text, "--%s %s\n", setting->path, setting->text);
		else if (setting->text[0] == 't')
			text_printf(exporting->text, "--%s\n", setting->path);
	}
}

/* The escapes of JSON are Python's too. */
static void write_python(
	struct exporting *exporting, const struct settings *settings, const char *prefix)
{
	struct text *text = exporting->text;

	for (int i = 0; i < settings->n; i++) {
		const struct setting *setting = &settings->rows[i];
		const char *value = setting->text;
		text_printf(text, "%s%s = ", prefix, setting->path);
		if (setting->type == SETTING_BOOL)
			text_add(text, value[0] == 't' ? "True" : "False");
		else if (setting->type != SETTING_STRING || strncmp(value, "torch.", 6) == 0 ||
			 strcmp(value, "True") == 0 || strcmp(value, "False") == 0 ||
			 strncmp(value, "float(", 6) == 0)
			text_add(text, value);
		else
			json_escape(text, value);
		text_add_char(text, '\n');
	}
}

void export_add_settings(
	struct exporting *exporting, const struct settings *settings, const char *prefix)
{
	switch (exporting->target->syntax) {
	case SYNTAX_YAML:
		write_tree(exporting, settings, WRITER_YAML);
		return;
	case SYNTAX_JSON:
		write_tree(exporting, settings, WRITER_JSON);
		return;
	case SYNTAX_TOML:
		write_toml(exporting, settings);
		return;
	case SYNTAX_PYTHON:
		write_python(exporting, settings, prefix);
		return;
	case SYNTAX_ARGUMENTS:
		write_arguments(exporting, settings);
		return;
	}
}

/* JSON has no comments. */
void export_write(struct exporting *exporting)
{
	struct settings settings;

	export_settings(exporting, &settings);
	if (exporting->target->syntax != SYNTAX_JSON)
		export_header(exporting);
	export_add_settings(exporting, &settings, "");
}
