// Zoom, search and the panel of a picture. What the boxes are stands in their titles, so this knows nothing about plans.
"use strict";
const main = document.getElementById("picture");
const svg = main.querySelector("svg");
const panel = document.getElementById("panel");
const search = document.getElementById("search");
const count = document.getElementById("count");
const svgNamespace = "http://www.w3.org/2000/svg";

const titled = [...svg.querySelectorAll("title")].filter((title) => title.parentNode !== svg);
const boxes = titled.map((title) => ({ element: title.parentNode, title: title.textContent }));
const boxOf = new Map(boxes.map((box) => [box.element, box]));
const hint = panel.textContent;
titled.forEach((title) => title.remove()); // the panel shows them, without a tooltip over the picture
document.title = `${svg.querySelector("title").textContent} - hipplan`;
svg.querySelector("title").remove();

// Zoom: the part of the picture that is shown.
const whole = svg.viewBox.baseVal;
const full = { x: 0, y: 0, width: whole.width, height: whole.height };
let view = { ...full };
svg.removeAttribute("width");
svg.removeAttribute("height");
svg.setAttribute("preserveAspectRatio", "xMidYMin meet");
const zoomMost = 400;

function show(next) {
  const width = Math.min(Math.max(next.width, full.width / zoomMost), full.width * 1.2);
  const height = width * (main.clientHeight / Math.max(main.clientWidth, 1));
  view = { x: next.x, y: next.y, width, height };
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  scheduleLabels();
}

function fit() {
  show({ x: 0, y: 0, width: full.width });
}

function zoom(factor, clientX, clientY) {
  const frame = main.getBoundingClientRect();
  const px = (clientX === undefined ? frame.width / 2 : clientX - frame.left) / frame.width;
  const py = (clientY === undefined ? frame.height / 2 : clientY - frame.top) / frame.height;
  const width = Math.min(Math.max(view.width / factor, full.width / zoomMost), full.width * 1.2);
  const height = (width * view.height) / view.width;
  show({ x: view.x + (view.width - width) * px, y: view.y + (view.height - height) * py, width });
}

main.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.shiftKey) {
    show({ ...view, y: view.y + (event.deltaY * view.width) / main.clientWidth });
  } else {
    zoom(Math.exp(-event.deltaY * 0.002), event.clientX, event.clientY);
  }
}, { passive: false });

let from = null;
main.addEventListener("pointerdown", (event) => {
  from = { x: event.clientX, y: event.clientY, view };
  main.setPointerCapture(event.pointerId);
  main.classList.add("moving");
});
main.addEventListener("pointermove", (event) => {
  if (from) {
    const scale = from.view.width / main.clientWidth;
    show({
      x: from.view.x - (event.clientX - from.x) * scale,
      y: from.view.y - (event.clientY - from.y) * scale,
      width: from.view.width,
    });
  } else {
    tell(boxOf.get(event.target));
  }
});
for (const end of ["pointerup", "pointercancel"]) {
  main.addEventListener(end, () => { from = null; main.classList.remove("moving"); });
}

// The panel.
function tell(box) {
  const text = box ? box.title : current >= 0 ? hits[current].title : hint;
  const [name, ...facts] = text.split("\n");
  panel.textContent = "";
  const head = document.createElement(box || current >= 0 ? "b" : "span");
  head.textContent = name;
  panel.append(head, facts.length ? `\n${facts.join("\n")}` : "");
}

// Labels that come with zoom: as large as their box allows, so a box says its name once it is large enough to read.
const labels = document.createElementNS(svgNamespace, "g");
svg.append(labels);
const labelsMost = 400;
const labelLargest = 9;
const readable = 7;
let scheduled = 0;

function scheduleLabels() {
  if (!scheduled) scheduled = requestAnimationFrame(() => { scheduled = 0; drawLabels(); });
}

function place(box) {
  if (!box.place) box.place = box.element.getBBox();
  return box.place;
}

function drawLabels() {
  labels.textContent = "";
  const scale = main.clientWidth / view.width;
  if (scale < 1.6) return;
  let drawn = 0;
  for (const box of boxes) {
    if (drawn >= labelsMost) break;
    if (box.element.tagName !== "path" || !box.element.parentNode.matches("g[class]")) continue;
    const { x, y, width, height } = place(box);
    if (x > view.x + view.width || x + width < view.x || y > view.y + view.height || y + height < view.y) continue;
    if (height < 12 || height > 30) continue;
    const upright = width < height;
    const { lines, size } = fitted(box.title.split("\n", 1)[0], upright ? height : width, upright ? width : height);
    if (size * scale < readable || size >= labelLargest) continue; // too small, or there already
    labels.append(label(lines, size, x + width / 2, y + height / 2, upright));
    drawn += 1;
  }
}

// A name on so many lines that it is largest.
function fitted(name, along, across) {
  let best = { lines: [name], size: 0 };
  for (let count = 1; count <= 3; count += 1) {
    const lines = broken(name, count);
    const longest = Math.max(...lines.map((line) => line.length));
    const size = Math.min(along / (0.6 * longest + 1), (across * 0.9) / (1.15 * lines.length), labelLargest);
    if (size > best.size) best = { lines, size };
  }
  return best;
}

// Broken behind dots, into lines of about the same length.
function broken(name, count) {
  const parts = name.split(/(?<=\.)/);
  const lines = [""];
  for (const part of parts) {
    const last = lines.length - 1;
    if (lines[last] && lines[last].length + part.length > (name.length / count) * 1.2 && lines.length < count) lines.push(part);
    else lines[last] += part;
  }
  return lines;
}

function label(lines, size, x, y, upright) {
  const text = document.createElementNS(svgNamespace, "text");
  text.setAttribute("class", "label");
  text.setAttribute("style", `font-size:${size}px`);
  text.setAttribute("transform", `translate(${x} ${y})${upright ? " rotate(-90)" : ""}`);
  lines.forEach((line, number) => {
    const span = document.createElementNS(svgNamespace, "tspan");
    span.setAttribute("x", 0);
    span.setAttribute("y", (number - (lines.length - 1) / 2) * size * 1.15 + size * 0.35);
    span.textContent = line;
    text.append(span);
  });
  return text;
}

// Search.
let hits = [];
let current = -1;
const mark = document.createElementNS(svgNamespace, "rect");
mark.id = "current";

function find() {
  const wanted = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  hits.forEach((box) => box.element.classList.remove("hit"));
  hits = wanted.length
    ? boxes.filter((box) => { const text = box.title.toLowerCase(); return wanted.every((word) => text.includes(word)); })
    : [];
  hits.forEach((box) => box.element.classList.add("hit"));
  main.classList.toggle("searching", wanted.length > 0);
  current = -1;
  mark.remove();
  count.textContent = wanted.length ? `${hits.length} found` : "";
  tell();
}

function step(by) {
  if (!hits.length) return;
  current = (current + by + hits.length) % hits.length;
  const { x, y, width, height } = place(hits[current]);
  const across = Math.min(full.width, Math.max(width * 12, 90));
  const down = (across * main.clientHeight) / main.clientWidth;
  show({ x: x + width / 2 - across / 2, y: y + height / 2 - down / 2, width: across });
  for (const [key, value] of Object.entries({ x, y, width, height })) mark.setAttribute(key, value);
  svg.append(mark);
  count.textContent = `${current + 1} of ${hits.length}`;
  tell();
}

search.addEventListener("input", find);
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") { search.value = ""; find(); search.blur(); }
});
const buttons = { previous: () => step(-1), next: () => step(1), in: () => zoom(1.5), out: () => zoom(1 / 1.5), fit };
for (const [name, act] of Object.entries(buttons)) document.getElementById(name).addEventListener("click", act);
document.addEventListener("keydown", (event) => {
  if (event.target === search || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { "+": buttons.in, "=": buttons.in, "-": buttons.out, 0: fit }[event.key];
  if (act) act();
  if (event.key === "/") { event.preventDefault(); search.focus(); }
});
window.addEventListener("resize", () => show(view));
fit();
