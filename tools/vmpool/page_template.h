// page_template.h: the page of tools/viewer/dist, as it is, inside the program.
//
// Owns: the bytes. Does not own: how they are made (tools/viewer/build.mjs; CI proves that they are up to date), what
// is put into them (page.h).
#ifndef VMPOOL_TOOLS_VMPOOL_PAGE_TEMPLATE_H_
#define VMPOOL_TOOLS_VMPOOL_PAGE_TEMPLATE_H_

// [page_template, page_template_end) is the page; not terminated.
extern const char page_template[], page_template_end[];

#endif  // VMPOOL_TOOLS_VMPOOL_PAGE_TEMPLATE_H_
