/* The constant parts of the page: page.css and page.js, which scripts/embed_page.py turns into C.
 */
#ifndef REPORTS_PAGES_STYLE_AND_SCRIPT_H
#define REPORTS_PAGES_STYLE_AND_SCRIPT_H

/* What stands between the tags of <style> and <script>, and its hash for the policy. */
extern const char html_style[], html_style_hash[];
extern const char html_script[], html_script_hash[];

#endif
