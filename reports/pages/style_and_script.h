/* The constant parts of the page: page.css and page.js, which scripts/embed_page.py turns into
 * C. */
#ifndef REPORTS_PAGES_STYLE_AND_SCRIPT_H
#define REPORTS_PAGES_STYLE_AND_SCRIPT_H

/* The contents of <style> and <script>, and the hash of each for the policy. */
extern const char html_style[], html_style_hash[];
extern const char html_script[], html_script_hash[];

#endif
