// What pages can do beyond what they do without script: keys, copying, and a list of the keys.
export const texts = JSON.parse(document.getElementById("texts").textContent);
export const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

if (document.querySelector("#live, svg[data-plot]")) import("./analytics.js");

// On a phone the sections are one line, which may begin elsewhere.
const here = document.querySelector("nav.sections [aria-current]");
if (here) here.closest("nav").scrollLeft = here.offsetLeft - 16;

const typing = (element) => element.matches("input, textarea, select, [contenteditable]");
const link = (path) => document.querySelector(`nav.sections a[href$="${path}"]`);

const goTo = { h: "./", s: "services", r: "routes", c: "consumers", u: "upstreams", p: "plugins", n: "nodes", t: "try", f: "traffic", e: "errors", l: "changes", q: "requests" };

const keys = [
  ["/", texts.key_search],
  ["j, k", texts.key_rows],
  ["Enter", texts.key_enter],
  [fill(texts.key_g, { keys: "h, f, e, q, l" }), texts.key_measured],
  [fill(texts.key_g, { keys: "s, r, c, u, p, n, t" }), texts.key_sections],
  ["t", texts.key_frame],
  ["p", texts.key_pause],
  ["← →, Home, End, Enter", texts.key_read],
  ["Escape", texts.key_escape],
  ["?", texts.key_help],
];

function help() {
  const opener = document.activeElement;
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "keys-title");
  const title = document.createElement("h2");
  title.id = "keys-title";
  title.textContent = texts.keys_title;
  const list = document.createElement("dl");
  list.className = "facts";
  for (const [key, what] of keys) {
    const term = document.createElement("dt");
    term.textContent = key;
    const description = document.createElement("dd");
    description.textContent = what;
    list.append(term, description);
  }
  const close = document.createElement("button");
  close.textContent = texts.close;
  close.addEventListener("click", () => dialog.close());
  dialog.append(title, list, close);
  dialog.addEventListener("close", () => { dialog.remove(); opener?.focus(); });
  document.body.append(dialog);
  dialog.showModal();
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr th a")];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
}

let prefix = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (prefix === "g" && goTo[event.key]) {
    link(goTo[event.key])?.click();
  } else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search").focus();
  } else if (event.key === "?") {
    help();
  } else if (event.key === "t") {
    document.querySelector("nav.frames a")?.focus();
  } else if (event.key === "p") {
    document.getElementById("pause")?.click();
  } else if (event.key === "j" || event.key === "k") {
    moveRow(event.key === "j" ? 1 : -1);
  }
  prefix = event.key;
});

for (const block of document.querySelectorAll("pre.copyable")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = texts.copy;
  const text = block.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = texts.copied;
  });
  block.prepend(button);
}

// A printed page says where it is from.
addEventListener("beforeprint", () => { document.querySelector(".printed").textContent = location.href; });

// Leaving a form that was changed asks first.
for (const form of document.querySelectorAll("form.entity")) {
  let changed = false;
  form.addEventListener("input", () => { changed = true; });
  form.addEventListener("submit", () => { changed = false; });
  addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
}

if (document.querySelector("[data-tail]")) import("./tail.js");
