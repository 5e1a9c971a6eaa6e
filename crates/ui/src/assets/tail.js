// Requests as they end: new rows at the top, unless the person has paused, scrolled, selected or points at a row.
const MAX_ROWS = 500;
const FLUSH_MILLIS = 500;
// More rows than this at once can be neither read nor drawn in time.
const MAX_NEW = 60;

const live = document.querySelector("[data-tail]");
const rows = document.querySelector("[data-rows]");
const empty = document.querySelector("[data-empty]");
const blank = document.querySelector("template[data-row]").content.querySelector("tr");
const pause = live.querySelector("[data-pause]");
const resume = live.querySelector("[data-resume]");
const state = live.querySelector("[data-state]");
const linkBase = blank.querySelector("th a").getAttribute("href");

let source = null;
let last = new URL(live.dataset.tail, document.baseURI).searchParams.get("after");
let waiting = [];
let arrived = 0;
let missed = 0;
let paused = false;
let wasHeld = false;
let lostAt = null;

function micros(value) {
  if (value < 10) return `${value.toFixed(1)} µs`;
  if (value < 1e3) return `${value.toFixed(0)} µs`;
  if (value < 1e4) return `${(value / 1e3).toFixed(1)} ms`;
  if (value < 1e6) return `${(value / 1e3).toFixed(0)} ms`;
  return `${(value / 1e6).toFixed(1)} s`;
}

// Everything is set as text: nothing of a request is ever markup.
function row(request) {
  const line = blank.cloneNode(true);
  const field = (name) => line.querySelector(`[data-field="${name}"]`);
  const link = line.querySelector("th a");
  link.href = linkBase + encodeURIComponent(request.id);
  link.title = request.path;
  const texts = {
    at: new Date(request.at * 1000).toISOString().slice(11, 23),
    method: request.method,
    path: request.path,
    status: request.status,
    decided: `${request.origin}: ${request.cause}`,
    upstream: request.upstream ?? "–",
    total: micros(request.us.total),
    gateway: micros(request.us.gateway),
  };
  for (const [name, text] of Object.entries(texts)) field(name).textContent = text;
  field("decided").title = texts.decided;
  for (const name of ["route", "consumer"]) {
    if (request[name] === null) continue;
    const cell = field(name), entity = document.createElement("a");
    entity.href = cell.dataset.base + encodeURIComponent(request[name].id);
    const text = document.createElement("bdi");
    text.textContent = request[name].name ?? request[name].id;
    entity.append(text);
    cell.replaceChildren(entity);
  }
  if (request.reason === "error") line.className = "failed";
  return line;
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
    const shown = waiting.slice(wasHeld ? 0 : -MAX_NEW).reverse();
    for (const data of shown) lines.append(row(JSON.parse(data)));
    missed += arrived - shown.length;
    waiting = [];
    arrived = 0;
    rows.prepend(lines);
    while (rows.children.length > MAX_ROWS) rows.lastElementChild.remove();
    if (empty) empty.hidden = true;
  }
  wasHeld = held;
  show(held);
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(held) {
  pause.setAttribute("aria-pressed", String(paused));
  resume.hidden = !held || arrived === 0;
  say(resume, `Show ${arrived} new`);
  const skipped = missed > 0 ? `; ${missed} not shown` : "";
  if (lostAt !== null) say(state, `Not connected since ${lostAt}`);
  else say(state, (held ? "Paused" : "Live") + skipped);
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
    const counts = JSON.parse(event.data);
    missed += counts.slow_listener + counts.over_limit;
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
