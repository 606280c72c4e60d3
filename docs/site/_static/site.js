// What the theme and Markdown leave out for readers without eyes or mouse: tests/ui/test_site.py asks axe.

const all = (selector) => [...document.querySelectorAll(selector)];
const give = (selector, name, value) => all(selector).forEach((element) => element.setAttribute(name, value));

/** The keyboard scrolls what is wider than its place. */
function reach() {
  for (const box of all("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", () => {
  give(".caption[role=heading]", "aria-level", "2");
  give(".sidebar-drawer", "aria-label", "All pages");
  give(".toc-drawer", "aria-label", "This page");
  // A corner of a table is no head of anything.
  for (const corner of all("th").filter((head) => head.textContent.trim() === "")) {
    corner.replaceWith(document.createElement("td"));
  }
  reach();
});
addEventListener("resize", reach);
