// Checks a page as axe does: names of controls and images, contrast of text, headings, landmarks, unique ids.
const found = [];
const visible = (element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0 && getComputedStyle(element).visibility !== "hidden";
};
const describe = (element) => `${element.tagName.toLowerCase()}.${String(element.className).slice(0, 60)} "${(element.innerText || "").slice(0, 40)}"`;
const nameOf = (element) => {
  const labelled = (element.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.innerText || "").join("");
  const label = element.id ? document.querySelector(`label[for="${CSS.escape(element.id)}"]`)?.innerText : "";
  return (element.getAttribute("aria-label") || labelled || label || element.closest("label")?.innerText || element.innerText || element.getAttribute("alt") || element.title || "").trim();
};
for (const element of document.querySelectorAll("button, a[href], input:not([type=hidden]), textarea, select, [role=button], [role=switch], [role=tab], [role=combobox], [role=img]")) {
  if (visible(element) && !nameOf(element) && !element.closest("[aria-hidden=true]")) found.push(`no name: ${describe(element)} ${element.outerHTML.slice(0, 160)}`);
}
for (const image of document.querySelectorAll("img:not([alt])")) found.push(`no alternative text: ${image.src}`);
if (!document.documentElement.lang) found.push("no language");
if (!document.title) found.push("no title");
if (document.querySelectorAll("h1").length !== 1) found.push("not exactly one first heading");
if (document.querySelectorAll("main, [role=main]").length < 1) found.push("no main landmark");
let before = 0;
for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
  const level = Number(heading.tagName[1]);
  if (level > before + 1) found.push(`heading skipped before: ${heading.innerText}`);
  before = level;
}
const ids = new Set();
for (const element of document.querySelectorAll("[id]")) {
  if (ids.has(element.id)) found.push(`id used twice: ${element.id}`);
  ids.add(element.id);
}
for (const element of document.querySelectorAll("[tabindex]")) {
  if (Number(element.getAttribute("tabindex")) > 0) found.push(`tabindex above 0: ${describe(element)}`);
}
const parse = (color) => {
  const parts = (color.match(/[\d.]+/g) || []).map(Number);
  return color.startsWith("rgb") && parts.length >= 3 ? [parts[0], parts[1], parts[2], parts.length > 3 ? parts[3] : 1] : null;
};
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((value) => { const part = value / 255; return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
const background = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const color = parse(getComputedStyle(at).backgroundColor);
    if (color && color[3] > 0) { layers.push(color); if (color[3] === 1) break; }
  }
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
};
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !visible(element) || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
  const style = getComputedStyle(element);
  if (element.closest("[aria-hidden=true], [disabled], .disabled, svg, canvas, .q-icon") || Number(style.opacity) < 1) continue;
  const color = parse(style.color);
  if (!color) continue;
  const behind = background(element);
  const [one, other] = [luminance(over(color, behind)), luminance(behind)];
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${describe(element)}`);
}
return found;
