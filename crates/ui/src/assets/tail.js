// Requests as they end: new rows at the top, unless the person has paused, scrolled, selected or points at a row. The oldest
// rows become the newest, so that a page costs the same however long it is open.
import { fill, texts } from "./app.js";

const MAX_ROWS = 200;
const FLUSH_MILLIS = 250;

const live = document.querySelector("[data-tail]");
const rows = document.querySelector("[data-rows]");
const empty = document.querySelector("[data-empty]");
const blank = document.querySelector("template[data-row]").content.querySelector("tr");
const pause = live.querySelector("[data-pause]");
const resume = live.querySelector("[data-resume]");
const state = live.querySelector("[data-state]");
const counts = live.querySelector("[data-counts]");
const linkBase = blank.querySelector("th a").dataset.base;
// The places of texts in each row that was made here.
const places = new WeakMap();

let source = null;
let last = new URL(live.dataset.tail, document.baseURI).searchParams.get("after");
let waiting = [];
let arrived = 0;
let shown = 0;
let missed = 0;
let paused = false;
let lostAt = null;

function micros(value) {
  if (value < 10) return `${value.toFixed(1)} µs`;
  if (value < 1e3) return `${value.toFixed(0)} µs`;
  if (value < 1e4) return `${(value / 1e3).toFixed(1)} ms`;
  if (value < 1e6) return `${(value / 1e3).toFixed(0)} ms`;
  return `${(value / 1e6).toFixed(1)} s`;
}

const thousands = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// Everything is set as text: nothing of a request is ever markup.
function say(element, text) {
  const node = element.firstChild;
  if (node?.nodeType !== Node.TEXT_NODE) element.textContent = text;
  else if (node.data !== text) node.data = text;
}

function refer(cell, entity) {
  const [none, link] = cell.children;
  none.hidden = entity !== null;
  link.hidden = entity === null;
  if (entity === null) return;
  link.href = cell.dataset.base + encodeURIComponent(entity.id);
  say(link.firstChild, entity.name ?? entity.id);
}

function made() {
  const line = blank.cloneNode(true);
  const fields = Object.fromEntries([...line.querySelectorAll("[data-field]")].map((it) => [it.dataset.field, it]));
  for (const name of ["route", "consumer"]) {
    const link = document.createElement("a");
    link.append(document.createElement("bdi"));
    fields[name].append(link);
  }
  places.set(line, { link: line.querySelector("th a"), ...fields });
  return line;
}

// A row to write into: the oldest one, once there are enough.
function free(more) {
  if (rows.childElementCount + more < MAX_ROWS) return made();
  const oldest = rows.lastElementChild;
  oldest.remove();
  return places.has(oldest) ? oldest : made();
}

function write(line, request) {
  const place = places.get(line);
  const decided = `${request.origin}: ${request.cause}`;
  place.link.href = linkBase + encodeURIComponent(request.id);
  place.link.title = request.path;
  place.decided.title = decided;
  say(place.at, new Date(request.at * 1000).toISOString().slice(11, 23));
  say(place.method, request.method);
  say(place.path, request.path);
  say(place.status, String(request.status));
  say(place.decided, decided);
  say(place.upstream, request.upstream ?? "–");
  say(place.total, micros(request.us.total));
  say(place.gateway, micros(request.us.gateway));
  refer(place.route, request.route);
  refer(place.consumer, request.consumer);
  line.className = request.reason === "error" ? "failed" : "";
}

function isHeld() {
  const selection = document.getSelection();
  const selects = !selection.isCollapsed && rows.contains(selection.anchorNode);
  return paused || selects || rows.matches(":hover") || rows.contains(document.activeElement);
}

function flush() {
  const held = isHeld();
  if (!held && waiting.length > 0) {
    const lines = document.createDocumentFragment();
    for (const data of waiting) {
      const line = free(lines.childElementCount);
      write(line, JSON.parse(data));
      lines.prepend(line);
    }
    shown += waiting.length;
    missed += arrived - waiting.length;
    waiting = [];
    arrived = 0;
    rows.prepend(lines);
    if (empty) empty.hidden = true;
  }
  show(held);
}

function show(held) {
  pause.setAttribute("aria-pressed", String(paused));
  resume.hidden = !held || arrived === 0;
  say(resume, fill(texts.show_new, { count: thousands(arrived) }));
  say(state, lostAt !== null ? fill(texts.lost, { time: lostAt }) : held ? texts.paused : texts.live);
  say(counts, missed > 0 ? fill(texts.shown, { shown: thousands(shown), all: thousands(shown + missed) }) : "");
  rows.closest("table").classList.toggle("stale", lostAt !== null);
}

function lost() {
  lostAt ??= new Date().toTimeString().slice(0, 8);
  show(isHeld());
  if (source?.readyState === EventSource.CLOSED) {
    close();
    setTimeout(open, 2000);
  }
}

function open() {
  if (source !== null || document.hidden) return;
  const address = new URL(live.dataset.tail, document.baseURI);
  address.searchParams.set("after", last);
  source = new EventSource(address);
  source.addEventListener("open", () => { lostAt = null; });
  source.addEventListener("error", lost);
  source.addEventListener("missed", (event) => {
    const { slow_listener, over_limit, thinned } = JSON.parse(event.data);
    missed += slow_listener + over_limit + thinned;
  });
  source.addEventListener("request", (event) => {
    last = event.lastEventId;
    arrived += 1;
    waiting.push(event.data);
    if (waiting.length > MAX_ROWS) waiting.shift();
  });
}

function close() {
  source?.close();
  source = null;
}

function setPaused(on) {
  paused = on;
  flush();
}

function proceed() {
  document.getSelection().removeAllRanges();
  if (rows.contains(document.activeElement)) document.activeElement.blur();
  scrollTo({ top: 0 });
  setPaused(false);
}

live.hidden = false;
pause.addEventListener("click", () => setPaused(!paused));
resume.addEventListener("click", proceed);
addEventListener("scroll", () => { if (scrollY > 16 && !paused) setPaused(true); }, { passive: true });
addEventListener("pagehide", close);
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
document.addEventListener("keydown", (event) => {
  const types = event.target.matches("input, textarea, select");
  if (event.key === "p" && !types && !event.ctrlKey && !event.metaKey && !event.altKey) (paused ? proceed() : setPaused(true));
});
setInterval(() => { if (!document.hidden) flush(); }, FLUSH_MILLIS);
open();
