#include "tools/vmpool/page_template.h"

#include "tools/viewer/dist/viewer.h"

// The assembler takes the file from the folder that the compiler runs in: the top of the tree. The page's hash stands
// behind it so that this file changes with it.
__asm__(
    ".pushsection .rodata\n"
    ".global page_template\n"
    ".global page_template_end\n"
    ".type page_template, %object\n"
    ".type page_template_end, %object\n"
    "page_template:\n"
    ".incbin \"tools/viewer/dist/viewer.html\"\n"
    "page_template_end:\n"
    ".asciz \"" VIEWER_SHA256
    "\"\n"
    ".size page_template, page_template_end - page_template\n"
    ".popsection\n");
