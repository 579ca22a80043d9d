"use strict";
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (name, about = {}, ...inside) => {
  const element = Object.assign(document.createElement(name), about);
  element.append(...inside);
  return element;
};

// Sorting: a click sorts numbers down and words up, the next one the other way, the third as the
// table came. Cells without a number stay last.
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
for (const table of all("table.sortable")) {
  const heads = all(".heads th", table);
  heads.forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    const orders = ["ascending", "descending"];
    if (head.classList.contains("number")) orders.reverse();
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const order = [...orders, "none"][(orders.indexOf(head.ariaSort) + 1) % 3];
      heads.forEach((other) => { other.ariaSort = "none"; });
      head.ariaSort = order;
      sort(table, column, order);
    });
  });
}

// Search: an exhibit stays that has all words.
const form = document.querySelector(".filters");
const exhibits = all(".exhibit");
const texts = new Map(exhibits.map((exhibit) => [exhibit, exhibit.textContent.toLowerCase()]));
function filter() {
  const searched = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const some = searched.length > 0;
  let shown = 0;
  for (const exhibit of exhibits) {
    exhibit.hidden = !searched.every((word) => texts.get(exhibit).includes(word));
    shown += !exhibit.hidden;
    document.querySelector(`nav a[href="#${exhibit.id}"]`).parentElement.hidden = exhibit.hidden;
  }
  all("nav li details").forEach((chapter) => { chapter.open = some; });
  all(".rest").forEach((rest) => { rest.open ||= some; });
  for (const part of all(".chapter")) {
    part.hidden = !part.querySelector(".exhibit:not([hidden])");
    const link = document.querySelector(`nav a[href="#${part.getAttribute("aria-labelledby")}"]`);
    link.closest("details").hidden = part.hidden;
  }
  document.querySelector(".nothing").hidden = shown > 0;
  for (const part of all(".front, .numbers")) {
    part.hidden = some;
    const link = document.querySelector(`nav a[href="#${part.getAttribute("aria-labelledby")}"]`);
    link.parentElement.hidden = some;
  }
  form.querySelector("output").textContent = `${shown} of ${exhibits.length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
document.querySelector(".nothing button").addEventListener("click", () => form.reset());
form.hidden = false;
filter();

// Pictures are made when they come near, and the others in idle time: dozens at once would keep the
// page from opening. All are there before anything is printed.
const images = all(".drawn img");
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

// A figure can be saved, as it is or as numbers; their address is made when it is asked for.
function csv(panels) {
  const field = (value) => (/[",\n]/.test(value ?? "") ? `"${value.replaceAll('"', '""')}"` : value ?? "");
  const unit = (value, percent, names) => names[value] ?? (percent && value !== null
    ? Number((100 * value).toPrecision(6)) : value);
  const rows = panels.flatMap((panel) => panel.series.flatMap((series) => series.x.map((x, k) => [
    panel.title, panel.x, panel.y, series.name,
    unit(x, panel.percent[0], panel.names[0]), unit(series.y[k], panel.percent[1], panel.names[1]),
  ].map((value) => field(value === null ? "" : value)).join(","))));
  return ["panel,x_axis,y_axis,series,x,y", ...rows].join("\n");
}
function saveAs(form, name, address) {
  const link = make("a", { href: "#", download: name }, form);
  link.addEventListener("click", () => { link.href = address(); });
  return link;
}

// Reading off: the mouse shows the nearest point of a curve, and curves that are chosen stand out.
const NEAREST = 24; // pixels
const shares = (value, [low, high], log) => (log
  ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
const place = (panel, x, y) => [ // in the panel, as shares of it
  shares(x, panel.limits[0], panel.log[0]), 1 - shares(y, panel.limits[1], panel.log[1])];
const said = (value, percent) => (percent
  ? (100 * value).toFixed(1) : String(Number(value.toPrecision(4))));
function vector(name, about, ...inside) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(about).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...inside);
  return element;
}
// Dashes are as long as in the picture, whose line is about half as wide.
const stroke = ({ color, dash }) => ({
  stroke: color, "stroke-dasharray": dash.map((x) => 2 * x).join(" "),
});
function named(panel, series) { // the name of a chosen curve, where it ends
  const ends = series.x.map((x, k) => [x, series.y[k]]).filter(([, y]) => y !== null)
    .map(([x, y]) => place(panel, x, y)).filter((at) => at.every((share) => share >= 0 && share <= 1));
  const [across, down] = (ends.at(-1) ?? [1, 1]).map(
    (share, k) => 100 * (panel.box[k] + panel.box[k + 2] * share));
  const name = make("span", { className: "name" }, series.name);
  Object.assign(name.style, { right: `${100 - across}%`, top: `${down}%`, color: series.color });
  return name;
}
function draw(panel, series) { // a panel cuts off what is outside
  const known = series.x.map((x, k) => [x, series.y[k]]).filter(([, y]) => y !== null);
  const points = known.map(([x, y]) => place(panel, x, y).join()).join(" ");
  const [x, y, width, height] = panel.box;
  const frame = { x, y, width, height, viewBox: "0 0 1 1", preserveAspectRatio: "none" };
  return vector("svg", frame, vector("polyline", { points, ...stroke(series) }));
}
function readable(figure, panels) {
  const drawn = figure.querySelector(".drawn");
  const over = vector("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none" });
  const reading = make("div", { className: "reading", hidden: true });
  drawn.append(over, reading);
  const points = panels.flatMap((panel) => panel.series.flatMap(
    (series) => series.x.map((x, k) => ({ panel, series, x, y: series.y[k] }))))
    .filter(({ x, y }) => x !== null && y !== null)
    .map((point) => ({ ...point, inner: place(point.panel, point.x, point.y) }))
    .filter(({ inner }) => inner.every((share) => share >= -0.01 && share <= 1.01))
    .map((point) => ({ ...point, at: point.inner.map(
      (share, k) => point.panel.box[k] + point.panel.box[k + 2] * share) }));
  const chosen = new Set();
  const curves = new Map(panels.flatMap((panel) => panel.series).reverse().filter( // the first stays
    (series) => series.line && series.name).map((series) => [series.name, series]).reverse());
  const redraw = (near) => {
    const lines = panels.flatMap((panel) => panel.series.filter((series) => series.line
      && (chosen.has(series.name) || series === near)).map((series) => [panel, series]));
    over.replaceChildren(...lines.map((line) => draw(...line)));
    all(".name", drawn).forEach((name) => name.remove());
    drawn.append(...lines.filter(([, series]) => chosen.has(series.name)).map((line) => named(...line)));
    drawn.classList.toggle("chosen", chosen.size > 0);
  };
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const distance = ({ at: [x, y] }) => Math.hypot(
      box.left + x * box.width - event.clientX, box.top + y * box.height - event.clientY);
    const near = points.reduce((best, point) => (
      distance(point) < distance(best) ? point : best), points[0]);
    reading.hidden = !near || distance(near) > NEAREST;
    redraw(reading.hidden ? null : near.series);
    if (reading.hidden) return;
    const { panel, series, x, y, at } = near;
    const [across, up] = panel.percent;
    const told = [[panel.x, panel.names[0][x] ?? said(x, across)],
      [panel.y, panel.names[1][y] ?? said(y, up)]];
    reading.textContent = [[series.name], ...told].map(
      (parts) => parts.filter(Boolean).join(": ")).filter(Boolean).join("\n");
    reading.style.whiteSpace = "pre-line";
    reading.style.left = `${at[0] < 0.6 ? 100 * at[0] + 2 : 100 * at[0] - 32}%`;
    reading.style.top = `${100 * at[1]}%`;
  });
  drawn.addEventListener("pointerleave", () => { reading.hidden = true; redraw(null); });
  if (curves.size < 2) return;
  const buttons = [...curves].map(([name, series]) => {
    const sample = vector("svg", { class: "sample" },
      vector("line", { x2: "100%", y1: "50%", y2: "50%", ...stroke(series) }));
    const button = make("button", { type: "button", ariaPressed: "false" }, sample, name);
    button.addEventListener("click", () => {
      const isChosen = !chosen.has(name);
      chosen[isChosen ? "add" : "delete"](name);
      button.ariaPressed = String(isChosen);
      redraw(null);
    });
    return button;
  });
  const group = make("div", { className: "curves", role: "group", ariaLabel: "Curves" }, ...buttons);
  figure.append(group);
}
for (const image of images) {
  const figure = image.closest("figure");
  const panels = JSON.parse(figure.dataset.panels);
  const file = image.dataset.file;
  readable(figure, panels);
  figure.closest(".exhibit").querySelector(".save").append(" ",
    saveAs("svg", file, () => { show(image); return image.src; }));
  if (panels.some((panel) => panel.series.length > 0)) {
    figure.closest(".exhibit").querySelector(".save").append(" ",
      saveAs("csv", file.replace(/svg$/, "csv"),
        () => `data:text/csv;charset=utf-8,${encodeURIComponent(csv(panels))}`));
  }
}

// What is wider than the screen fades at its right end until one has moved there.
for (const box of all(".wide, .drawing")) {
  const fade = () => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
  new ResizeObserver(fade).observe(box);
  box.addEventListener("scroll", fade, { passive: true });
}

// The contents: closed on a phone, and following the reader elsewhere.
const contents = document.querySelector(".contents");
const phone = () => matchMedia("(max-width: 60rem)").matches;
if (phone()) contents.open = false;
contents.addEventListener("click", (event) => {
  if (event.target.closest("a") && phone()) contents.open = false;
});
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((e) => e.isIntersecting)) {
    all("nav a[aria-current]").forEach((link) => link.removeAttribute("aria-current"));
    const link = document.querySelector(`nav a[href="#${entry.target.id}"]`);
    link.setAttribute("aria-current", "location");
    link.closest("details").open = true;
  }
}, { rootMargin: "0px 0px -70% 0px" });
exhibits.forEach((exhibit) => watcher.observe(exhibit));

// What a link leads to is opened, be it in a fold; on paper notes, runs and numbers are.
function reveal() {
  const id = decodeURIComponent(location.hash.slice(1));
  for (let part = document.getElementById(id); part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
  }
}
addEventListener("hashchange", reveal);
reveal();
const folded = all(".origin, .pairs, .notes, .rest").filter((details) => !details.open);
addEventListener("beforeprint", () => folded.forEach((details) => { details.open = true; }));
addEventListener("afterprint", () => folded.forEach((details) => { details.open = false; }));
