// Numbers and names as a reader sees them.
const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];

/** Three digits. */
function digits(value) {
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3, useGrouping: value >= 1e4 });
}

/** Scale and prefix that suit a value. */
function prefixOf(value) {
  return PREFIXES.find(([scale]) => Math.abs(value) >= scale * 0.9995) || PREFIXES[PREFIXES.length - 1];
}

/** A value with its unit: 3.21 ms; a dash where it is not known. */
function quantity(value, unit) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return `0\u00a0${unit}`;
  const [scale, prefix] = prefixOf(value);
  return `${digits(value / scale)}\u00a0${prefix}${unit}`;
}

/** The ends of an interval in one unit: 3.0 to 3.5 ms. */
function interval(low, high, unit) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return null;
  const [scale, prefix] = prefixOf(high);
  return `${digits(low / scale)} to ${digits(high / scale)}\u00a0${prefix}${unit}`;
}

/** The ends of an interval in the unit of a value that stands before them: 3.0–3.5. */
function endsOf(value, low, high) {
  if (![value, low, high].every(Number.isFinite)) return null;
  const [scale] = prefixOf(value);
  return `${digits(low / scale)}–${digits(high / scale)}`;
}

/** A share in per cent: 0.4 %, 12 %. */
function percent(share) {
  if (share === null || !Number.isFinite(share)) return "–";
  const value = Math.abs(100 * share);
  return `${share < 0 && value >= 0.05 ? "−" : ""}${value < 0.05 ? "0" : value < 10 ? value.toFixed(1) : Math.round(value)}\u00a0%`;
}

/** A change against 1 in words: "12 % less", "3 % more", "as much". */
function change(ratio) {
  const share = Math.abs(ratio - 1);
  if (share < 0.005) return null;
  return `${share < 0.1 ? Number((100 * share).toFixed(1)) : Math.round(100 * share)}\u00a0% ${ratio < 1 ? "less" : "more"}`;
}

function sentenceList(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

/** Text that stands for itself in HTML. */
function escaped(text) {
  return String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

const gpuWords = (gpu) => (gpu.virtual ? `${gpu.label} (virtual)` : gpu.label);
const networkWords = (number) => `${content.networks[number].name}, ${content.networks[number].input}`;
const atPoint = (point) => (point.name === "default" ? "its default clock" : point.name);
const counted = (number, one, more) => `${number.toLocaleString("en")} ${number === 1 ? one : more || `${one}s`}`;
const flagWords = (flag) => flag.replaceAll("_", " ");

/** An element with attributes and children; text is never read as HTML. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);

/** Fill a select with [value, text] pairs; keeps its value where that is still there. */
function fill(select, options, value) {
  const wanted = String(value ?? select.value);
  select.replaceChildren(...options.map(([key, text]) => element("option", { value: key }, text)));
  if (options.some(([key]) => String(key) === wanted)) select.value = wanted;
}

/** Fill a table: heads as [text, isText], rows as lists of text or nodes. */
function fillTable(table, heads, lines) {
  table.tHead.replaceChildren(
    element("tr", {}, ...heads.map(([text, isText]) => element("th", isText ? { scope: "col", class: "text" } : { scope: "col" }, text))),
  );
  table.tBodies[0].replaceChildren(
    ...lines.map((cells) =>
      element("tr", {}, ...cells.map((cell, at) => element("td", heads[at][1] ? { class: heads[at][1] } : {}, cell ?? "–"))),
    ),
  );
}
