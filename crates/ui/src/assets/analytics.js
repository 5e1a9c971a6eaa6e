// Charts that show what the pointer or a key is on, keep it in view, and choose a frame by a drag; pages that refresh
// themselves.

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

// The place of the pointer across the chart in its units, within its sides, and the time there.
function under(svg, event) {
  const { sides: [left, right], from, to } = plot(svg);
  const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
  const within = Math.min(Math.max(x, left), right);
  return { x: within, time: from + ((within - left) / (right - left)) * (to - from) };
}

// What a chart shows at a time: a box of text, and a line in the chart.
class Reading {
  constructor(kind) {
    this.box = document.createElement("div");
    this.box.className = kind;
    this.box.hidden = true;
    this.line = make("path", { class: "cursor" });
    this.svg = null;
    document.body.append(this.box);
  }

  // Fills the box, and shows it beside a place in the window.
  show(svg, time, { clientX, clientY }, hint = []) {
    const { sides: [left, right, top, bottom], from, to, start, step, names, values } = plot(svg);
    this.svg = svg;
    this.index = Math.min(Math.max(Math.floor((time - start) / step), 0), (values[0]?.length ?? 1) - 1);
    const at = new Date((start + this.index * step) * 1000).toISOString();
    const lines = names.map((name, line) => {
      const row = document.createElement("div");
      const value = document.createElement("strong");
      value.textContent = values[line][this.index] || texts.no_data;
      row.append(`${name} `, value);
      return row;
    });
    this.box.replaceChildren(`${at.slice(0, 10)} ${at.slice(11, 19)} UTC`, ...lines, ...hint);
    this.box.hidden = false;
    const beside = clientX + 16 + this.box.offsetWidth > innerWidth ? clientX - 16 - this.box.offsetWidth : clientX + 16;
    const [across, down] = this.box.matches(".pinned") ? [scrollX, scrollY] : [0, 0];
    this.box.style.left = `${Math.max(beside, 0) + across}px`;
    this.box.style.top = `${Math.min(clientY + 16, innerHeight - this.box.offsetHeight) + down}px`;
    const x = left + ((time - from) / (to - from)) * (right - left);
    this.line.setAttribute("d", `M${Math.min(Math.max(x, left), right)} ${top}V${bottom}`);
    svg.append(this.line);
  }

  hide() {
    this.svg = null;
    this.box.hidden = true;
    this.line.remove();
  }
}

const hover = new Reading("tip");
const pinned = new Reading("tip");
pinned.box.classList.add("pinned");
pinned.box.setAttribute("role", "status");
// Whether the reading moves by keys.
let isByKeys = false;

function leave() {
  isByKeys = false;
  hover.hide();
}

// Keeps a reading in view; the same one again ends that.
function pin(svg, time, place) {
  const { svg: before, index } = pinned;
  const help = document.createElement("div");
  help.className = "help";
  help.textContent = texts.unpin;
  pinned.show(svg, time, place, [help]);
  if (before === svg && index === pinned.index) pinned.hide();
}

// The middle of a point in time, and where in the window the chart has it.
function place(svg, index) {
  const { sides: [left, right, top], from, to, start, step } = plot(svg);
  const time = Math.min(Math.max(start + (index + 0.5) * step, from), to - 1);
  const x = left + ((time - from) / (to - from)) * (right - left);
  const at = new DOMPoint(x, top).matrixTransform(svg.getScreenCTM());
  return [time, { clientX: at.x, clientY: at.y }];
}

// Reads the chart that has the focus by keys. Returns whether the key was for it.
function readByKey(svg, key) {
  const last = (plot(svg).values[0]?.length ?? 0) - 1;
  const at = isByKeys && hover.svg === svg ? hover.index : last;
  const to = { ArrowLeft: isByKeys ? at - 1 : at, ArrowRight: at + 1, Home: 0, End: last, Enter: at, " ": at }[key];
  if (to === undefined || last < 0) return false;
  const index = Math.min(Math.max(to, 0), last);
  hover.box.setAttribute("aria-live", "polite");
  hover.show(svg, ...place(svg, index));
  isByKeys = true;
  if (key === "Enter" || key === " ") pin(svg, ...place(svg, index));
  return true;
}

// Charts can have the focus, because keys read them.
function makeReadable(page) {
  for (const svg of page.querySelectorAll("svg[data-plot]")) svg.setAttribute("tabindex", "0");
  return page;
}
makeReadable(document);

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
  if (!svg) return isByKeys || leave();
  isByKeys = false;
  hover.box.setAttribute("aria-live", "off");
  hover.show(svg, under(svg, event).time, event);
});
document.addEventListener("focusout", (event) => { if (isByKeys && event.target === hover.svg) leave(); });
// Charts of another width have their times elsewhere. Phones change the height while they scroll.
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) pinned.hide();
  width = innerWidth;
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
  const { svg } = drag;
  const { x, time } = under(svg, event);
  const times = [time, drag.time].sort((a, b) => a - b);
  const isFrame = Math.abs(x - drag.x) > 8;
  cancel();
  if (isFrame) show(...times); else pin(svg, time, event);
});
document.addEventListener("pointercancel", cancel);
document.addEventListener("dblclick", (event) => { if (plotOf(event.target)) back(); });
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.target.matches("input, select, textarea")) return;
  if (event.target.matches("svg[data-plot]") && readByKey(event.target, event.key)) return event.preventDefault();
  if (event.key !== "Escape") return;
  if (drag) cancel(); else if (pinned.svg) pinned.hide(); else if (isByKeys) leave(); else back();
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

// Nothing moves under the pointer, or while something is selected, pinned or read by keys.
const isInUse = (part) => {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && part.contains(selection.anchorNode);
  const read = [drag?.svg, pinned.svg, isByKeys ? hover.svg : null];
  return isSelected || read.some((svg) => svg && part.contains(svg)) || part.querySelector("tbody tr:hover, a.mark:hover") !== null;
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
    const page = makeReadable(new DOMParser().parseFromString(await response.text(), "text/html"));
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
