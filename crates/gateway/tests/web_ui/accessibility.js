// What of a page people cannot reach, read or name, as a list of complaints: without mouse, with weak eyes, by ear.
(() => {
  const complaints = [];
  const complain = (what, element) => complaints.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  const visible = (selector) => [...document.querySelectorAll(selector)].filter((it) => it.checkVisibility());

  const isField = (element) => element.matches("input, select, textarea");
  for (const control of visible("a[href], button, input, select, textarea, summary, svg[role=img], [role=region]")) {
    const labels = [...(control.labels ?? [])].map((label) => label.textContent);
    const own = isField(control) ? labels : [control.textContent];
    if (![control.getAttribute("aria-label"), ...own].join("").trim()) complain("no name", control);
  }
  for (const table of visible("table")) {
    if (!table.caption || table.querySelector("th:not([scope])")) complain("no caption or scope", table);
  }
  for (const element of document.querySelectorAll("[id]")) {
    if (document.querySelectorAll(`#${CSS.escape(element.id)}`).length > 1) complain("id used twice", element);
  }

  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    const color = element ? getComputedStyle(element).backgroundColor : "rgb(255, 255, 255)";
    return channels(color)[3] === 0 ? background(element.parentElement) : color;
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  for (const element of visible("body *").filter((it) => hasText(it) && !it.closest(".unseen, .skip"))) {
    const style = getComputedStyle(element);
    const color = element.closest("svg") ? style.fill : style.color;
    const [dark, light] = [luminance(color), luminance(background(element))].sort((a, b) => a - b);
    if ((light + 0.05) / (dark + 0.05) < 4.5) complain("contrast", element);
  }

  for (const element of visible("a[href], button, input, select, textarea, summary, [tabindex='0']")) {
    element.focus();
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    if (element.tabIndex > 0 || outlineStyle === "none" || parseFloat(outlineWidth) < 2) complain("focus", element);
  }
  if (document.documentElement.scrollWidth > innerWidth) complaints.push(`wider than ${innerWidth} pixels`);
  if (document.querySelectorAll("h1").length !== 1 || !document.documentElement.lang) complaints.push("no heading or language");
  return complaints;
})()
