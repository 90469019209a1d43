#include "reports/views/svg.h"

#include <stdio.h>
#include <string.h>

/* Colours by Okabe and Ito, which colour-blind people can tell apart. */
const char *const picture_colors[PICTURE_COLORS] = {
	"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#c9b700", "#7a5cb5"};

const char *picture_color(enum op_kind kind)
{
	static const struct {
		const char *css, *fill;
	} fills[] = {{"k-forward", "#0072b2"}, {"k-backward", "#009e73"},
		{"k-recompute", "#cc79a7"}, {"k-loss", "#7a5cb5"}, {"k-optimizer", "#c9b700"},
		{"k-gather", "#56b4e9"}, {"k-scatter", "#e69f00"}, {"k-reduce", "#d55e00"}};
	const char *css = kind_appearance(kind).css;

	for (int i = 0; i < COUNT_OF(fills); i++) {
		if (strcmp(css, fills[i].css) == 0)
			return fills[i].fill;
	}
	return "#8c8c8c";
}

void picture_begin(int width, int height, const char *title, const char *description, bool hatched,
	struct text *text)
{
	text_printf(text,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\" aria-label=\"",
		width, height, width, height);
	add_html(text, title);
	text_add(text, ". ");
	add_html(text, description);
	text_add(text, "\">\n<desc>");
	add_html(text, description);
	text_add(text, "</desc>\n");
	if (!hatched)
		return;
	text_add(text, "<defs><pattern id=\"padding\" width=\"6\" height=\"6\" "
		       "patternUnits=\"userSpaceOnUse\"><path d=\"M-1 1l2-2M0 6l6-6M5 7l2-2\" "
		       "stroke=\"#8c8c8c\" stroke-width=\"1.5\"/></pattern></defs>\n");
}

void picture_end(struct text *text)
{
	text_add(text, "</svg>\n");
}

static void add_box(double x, double y, double width, double height, const char *paint,
	const char *words, struct text *text)
{
	text_printf(text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\" %s",
		x, y, width < 1.5 ? 1.5 : width, height, paint);
	if (words == NULL) {
		text_add(text, "/>\n");
		return;
	}
	text_add(text, "><title>");
	add_html(text, words);
	text_add(text, "</title></rect>\n");
}

void picture_box(double x, double y, double width, double height, const char *fill,
	const char *words, struct text *text)
{
	char paint[64] = "fill=\"";

	strncat(paint, fill, 32);
	strncat(paint, "\"", 2);
	add_box(x, y, width, height, paint, words, text);
}

void picture_padding(
	double x, double y, double width, double height, const char *words, struct text *text)
{
	add_box(x, y, width < 3 ? 3 : width, height,
		"fill=\"url(#padding)\" stroke=\"#8c8c8c\" stroke-width=\".7\"", words, text);
}

static void add_label(double x, double y, const char *anchor, int size, const char *fill,
	const char *words, struct text *text)
{
	text_printf(text,
		"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x,
		y, anchor, size, fill);
	add_html(text, words);
	text_add(text, "</text>\n");
}

void picture_label(
	double x, double y, const char *anchor, int size, const char *words, struct text *text)
{
	add_label(x, y, anchor, size, "currentColor", words, text);
}

/* Letters are about 0.58 times their size wide. */
bool picture_fits(double width, int size, const char *words)
{
	return width > 8 && (double)strlen(words) * 0.58 * size <= width - 6;
}

/* Black on bright colours, white on dark ones. */
static const char *ink_on(const char *fill)
{
	unsigned red, green, blue;

	if (sscanf(fill, "#%2x%2x%2x", &red, &green, &blue) != 3)
		return "#111";
	return 0.299 * red + 0.587 * green + 0.114 * blue < 130 ? "#fff" : "#111";
}

void picture_named_box(const struct picture_box *box, const char *fill, const char *name,
	const char *words, struct text *text)
{
	picture_box(box->x, box->y, box->width, box->height, fill, words, text);
	if (picture_fits(box->width, 11, name))
		add_label(box->x + box->width / 2, box->y + box->height / 2 + 4, "middle", 11,
			ink_on(fill), name, text);
}

void picture_line(double x1, double y1, double x2, double y2, bool dashed, struct text *text)
{
	text_printf(text,
		"<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\" stroke=\"#8c8c8c\" "
		"stroke-width=\"1\"%s/>\n",
		x1, y1, x2, y2, dashed ? " stroke-dasharray=\"3 3\"" : "");
}
