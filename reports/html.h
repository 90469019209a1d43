/* The constant parts of the page. */
#ifndef REPORTS_HTML_H
#define REPORTS_HTML_H

extern const char html_style[];  /* the text of <style> */
extern const char html_script[]; /* the text of <script>: sorting of tables */

#endif
