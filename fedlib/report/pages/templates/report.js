"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Sorting: a click sorts up, the next one down, the third as the table came. Cells without a number
// stay last.
const collator = new Intl.Collator("en", { numeric: true });
function compare(a, b, sign) {
  const [x, y] = [a, b].map((cell) => cell.dataset.value);
  if ((x === undefined) !== (y === undefined)) return x === undefined ? 1 : -1;
  return sign * (x === undefined ? collator.compare(a.textContent, b.textContent) : x - y);
}
function sort(table, column, order) {
  const body = table.tBodies[0];
  const sign = { ascending: 1, descending: -1, none: 0 }[order];
  const rows = [...body.rows];
  rows.forEach((row, place) => { row.dataset.place ??= place; });
  rows.sort((a, b) => (sign && compare(a.cells[column], b.cells[column], sign))
    || a.dataset.place - b.dataset.place);
  body.append(...rows);
}
const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
for (const table of all("table.sortable")) {
  const heads = all(".heads th", table);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const order = NEXT[head.ariaSort];
      heads.forEach((other) => { other.ariaSort = "none"; });
      head.ariaSort = order;
      sort(table, column, order);
    });
  });
}

// Filters: nothing ticked shows everything. What is about no method or data in particular stays.
const form = document.querySelector(".filters");
const exhibits = all(".exhibit");
function filter() {
  const wanted = Object.fromEntries(["method", "family"].map((name) =>
    [name, new Set(all(`input[name=${name}]:checked`, form).map((box) => box.value))]));
  const passes = (name, values) => !wanted[name].size || values.some((v) => wanted[name].has(v));
  for (const item of all("tr[data-method], tr[data-family], .block")) {
    item.hidden = ["method", "family"].some(
      (name) => item.dataset[name] && !passes(name, [item.dataset[name]]));
  }
  for (const block of all(".block:not([hidden])")) {
    block.hidden = all("tbody tr", block).every((row) => row.hidden);
  }
  let shown = 0;
  for (const exhibit of exhibits) {
    const blocks = all(".block", exhibit);
    exhibit.hidden = !passes("method", JSON.parse(exhibit.dataset.methods))
      || !passes("family", JSON.parse(exhibit.dataset.families))
      || (blocks.length > 0 && blocks.every((block) => block.hidden));
    shown += !exhibit.hidden;
    document.querySelector(`nav a[href="#${exhibit.id}"]`).parentElement.hidden = exhibit.hidden;
  }
  form.querySelector("output").textContent = `${shown} of ${exhibits.length} shown`;
}
form.addEventListener("change", filter);
form.addEventListener("reset", () => setTimeout(filter));
form.hidden = false;
filter();

// Pictures are made when they come near, and the others in idle time: dozens at once would keep the
// page from opening. All are there before anything is printed.
const images = all("figure img");
function show(image) {
  if (image.hasAttribute("src")) return;
  image.src = image.dataset.source;
  image.removeAttribute("data-source");
}
const nearby = new IntersectionObserver((entries) => {
  entries.filter((entry) => entry.isIntersecting).forEach((entry) => show(entry.target));
}, { rootMargin: "100%" });
images.forEach((image) => nearby.observe(image));
const whenIdle = window.requestIdleCallback ?? ((task) => setTimeout(task, 50));
function showNext() {
  const image = images.find((other) => !other.hasAttribute("src"));
  if (!image) return;
  show(image);
  whenIdle(showNext);
}
addEventListener("load", () => whenIdle(showNext));
addEventListener("beforeprint", () => images.forEach(show));

// Pictures can be saved; their address is said once, in the picture.
for (const image of images) {
  const link = document.createElement("a");
  link.textContent = "svg";
  link.href = "#";
  link.addEventListener("click", () => {
    show(image);
    link.download = image.dataset.file;
    link.href = image.src;
  });
  const line = document.createElement("p");
  line.className = "save";
  line.append("Save as ", link);
  image.closest("figure").after(line);
}

// The contents: closed on a phone, and following the reader elsewhere.
const contents = document.querySelector(".contents");
if (matchMedia("(max-width: 60rem)").matches) contents.open = false;
contents.addEventListener("click", (event) => {
  if (event.target.closest("a") && matchMedia("(max-width: 60rem)").matches) contents.open = false;
});
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((e) => e.isIntersecting)) {
    all("nav a[aria-current]").forEach((link) => link.removeAttribute("aria-current"));
    const link = document.querySelector(`nav a[href="#${entry.target.id}"]`);
    link?.setAttribute("aria-current", "location");
  }
}, { rootMargin: "0px 0px -70% 0px" });
exhibits.forEach((exhibit) => watcher.observe(exhibit));

// On paper, how the runs were made is unfolded; their specifications are not.
const folded = all(".origin, .pairs").filter((details) => !details.open);
addEventListener("beforeprint", () => folded.forEach((details) => { details.open = true; }));
addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));
