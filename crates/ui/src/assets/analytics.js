// Charts that show what the pointer is on and choose a frame by a drag, and pages that refresh themselves.

import { fill, texts } from "./app.js";

// --- charts
const plotOf = (target) => target instanceof Element ? target.closest("svg[data-plot]") : null;
const known = new WeakMap();
const make = (name, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
};

function plot(svg) {
  if (!known.has(svg)) {
    const data = JSON.parse(svg.dataset.plot);
    data.values = data.values.map((texts) => texts.split("|"));
    known.set(svg, data);
  }
  return known.get(svg);
}

// The place of the pointer in the chart's units, within its sides, and the time there.
function under(svg, event) {
  const { sides: [left, right], from, to } = plot(svg);
  const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
  const within = Math.min(Math.max(x, left), right);
  return { x: within, time: from + ((within - left) / (right - left)) * (to - from) };
}

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
const cursor = make("path", { class: "cursor" });

function point(svg, event) {
  const { sides: [, , top, bottom], start, step, names, values } = plot(svg);
  const { x, time } = under(svg, event);
  const index = Math.floor((time - start) / step);
  const at = new Date((start + index * step) * 1000).toISOString();
  const lines = names.map((name, line) => {
    const row = document.createElement("div");
    const value = document.createElement("strong");
    value.textContent = values[line][index] || texts.no_data;
    row.append(`${name} `, value);
    return row;
  });
  tip.replaceChildren(`${at.slice(0, 10)} ${at.slice(11, 19)} UTC`, ...lines);
  tip.hidden = false;
  const beside = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
  tip.style.left = `${Math.max(beside, 0)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight)}px`;
  cursor.setAttribute("d", `M${x} ${top}V${bottom}`);
  svg.append(cursor);
}

function leave() {
  tip.hidden = true;
  cursor.remove();
}

let drag = null;

function select(event) {
  const { sides: [, , top, bottom] } = plot(drag.svg);
  const { x } = under(drag.svg, event);
  const sides = { x: Math.min(x, drag.x), y: top, width: Math.abs(x - drag.x), height: bottom - top };
  for (const [name, value] of Object.entries(sides)) drag.area.setAttribute(name, value);
}

function cancel() {
  drag?.area.remove();
  drag = null;
}

// Another frame of this page. The one before is where Escape leads back to.
function show(from, to) {
  const address = new URL(location.href);
  address.searchParams.delete("page");
  address.searchParams.set("from", Math.floor(from));
  address.searchParams.set("to", Math.max(Math.ceil(to), Math.floor(from) + 1));
  const before = sessionStorage.getItem(`before ${location.href}`) ?? location.href;
  sessionStorage.setItem(`before ${address}`, before);
  location.assign(address);
}

function back() {
  const before = sessionStorage.getItem(`before ${location.href}`);
  if (before) location.assign(before);
}

document.addEventListener("pointermove", (event) => {
  if (drag) return select(event);
  const svg = plotOf(event.target);
  if (svg) point(svg, event); else leave();
});
document.addEventListener("pointerdown", (event) => {
  const svg = plotOf(event.target);
  if (!svg || event.button !== 0 || event.target.closest("a")) return;
  const { x, time } = under(svg, event);
  drag = { svg, x, time, area: make("rect", { class: "selected" }) };
  svg.append(drag.area);
  leave();
  event.preventDefault();
});
document.addEventListener("pointerup", (event) => {
  if (!drag) return;
  const { x, time } = under(drag.svg, event);
  const times = [time, drag.time].sort((a, b) => a - b);
  const isFrame = Math.abs(x - drag.x) > 8;
  cancel();
  if (isFrame) show(...times);
});
document.addEventListener("pointercancel", cancel);
document.addEventListener("dblclick", (event) => { if (plotOf(event.target)) back(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]") || event.target.matches("input, select, textarea")) return;
  if (drag) cancel(); else back();
});

// --- refresh
const live = () => document.getElementById("live");
const clock = (date) => `${date.toISOString().slice(11, 19)} UTC`;
let connected = new Date();
let isPaused = false;
let timer = 0;

const banner = document.createElement("p");
banner.className = "note error";
banner.id = "connection";
banner.setAttribute("role", "status");
banner.hidden = true;
live()?.before(banner);

function lost() {
  banner.textContent = fill(texts.stale, { time: clock(connected) });
  banner.hidden = false;
  live().classList.add("stale");
}

// Nothing moves under the pointer, or while something is selected.
const isInUse = (part) => {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && part.contains(selection.anchorNode);
  return isSelected || (drag && part.contains(drag.svg)) || part.querySelector("tbody tr:hover, a.mark:hover") !== null;
};

function replace(part, fresh) {
  if (isInUse(part) || part.isEqualNode(fresh)) return;
  for (const open of part.querySelectorAll("details[open][id]")) {
    const same = fresh.querySelector(`#${CSS.escape(open.id)}`);
    if (same) same.open = true;
  }
  const scrolled = [...part.querySelectorAll(".scroll[id]")].map((it) => [it.id, it.scrollLeft]);
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const places = [...part.querySelectorAll("a, summary, [tabindex]")];
  part.replaceWith(fresh);
  for (const [id, left] of scrolled) {
    const same = document.getElementById(id);
    if (same) same.scrollLeft = left;
  }
  if (focused) [...fresh.querySelectorAll("a, summary, [tabindex]")][places.indexOf(focused)]?.focus({ preventScroll: true });
}

function update(fresh) {
  const parts = (of) => [...of.children].map((part) => part.id).join();
  if (parts(fresh) !== parts(live())) return replace(live(), fresh);
  for (const part of [...fresh.children]) replace(document.getElementById(part.id), part);
}

// What this page would show now; nothing if the node does not answer.
async function ask() {
  try {
    const response = await fetch(location.href, { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) return null;
    // Elsewhere is the page to log in.
    if (response.redirected) return location.reload();
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return page.getElementById("live") ?? location.reload();
  } catch {
    return null;
  }
}

async function refresh() {
  clearTimeout(timer);
  if (isPaused || document.hidden) return;
  const fresh = await ask();
  clearTimeout(timer);
  timer = setTimeout(refresh, live().dataset.live * 1000);
  if (fresh === undefined) return;
  if (fresh === null) return lost();
  connected = new Date();
  banner.hidden = true;
  live().classList.remove("stale");
  update(document.adoptNode(fresh));
}

function pauseButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.id = "pause";
  button.textContent = texts.pause;
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? texts.resume : texts.pause;
    refresh();
  });
  const frames = document.querySelector("nav.frames");
  if (frames) frames.append(button); else live().before(button);
}

if (live()?.dataset.live) {
  pauseButton();
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  timer = setTimeout(refresh, live().dataset.live * 1000);
}
