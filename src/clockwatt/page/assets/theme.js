// Plots follow the reader's light or dark setting; colours of GPUs stay what they are, lightened where the page is dark.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const plots = {};

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A colour that can be seen on the page as it is. */
function seen(colour) {
  if (!dark.matches) return colour;
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const light = (0.3 * channels[0] + 0.59 * channels[1] + 0.11 * channels[2]) / 255;
  const mix = Math.max(0, 0.7 - light);
  return `#${channels.map((one) => Math.round(one + (255 - one) * mix).toString(16).padStart(2, "0")).join("")}`;
}

function paint(plot) {
  const [ink, quiet, grid] = [style("ink"), style("quiet"), style("grid")];
  for (const model of plot.references()) {
    const has = (name) => name in model.properties;
    if (has("major_label_text_color")) model.setv({ major_label_text_color: quiet, axis_label_text_color: quiet });
    if (model.type === "Grid") model.setv({ grid_line_color: grid });
  }
  for (const name of ["joules-quads"]) {
    const renderer = plot.document.get_model_by_name(name);
    if (renderer) renderer.glyph.setv({ line_color: { value: style("paper") } });
  }
  for (const name of ["transient-line", "transient-dots"]) {
    const renderer = plot.document.get_model_by_name(name);
    if (renderer) renderer.glyph.setv({ line_color: { value: name === "transient-line" ? style("accent") : ink } });
  }
}

/** Give a source new rows, as a list of objects or as lists by column. */
function give(plot, source, found) {
  const model = plots[plot].document.get_model_by_name(source);
  const columns = Object.keys(Array.isArray(found) ? Object.fromEntries(Object.keys(model.data).map((key) => [key, []])) : found);
  model.data = Array.isArray(found) ? Object.fromEntries(columns.map((key) => [key, found.map((one) => one[key])])) : found;
}

function describe(plot, text) {
  byId(`plot-${plot}`).setAttribute("aria-label", text);
}

const SHAPES = { square: '<path d="M4 4H12V12H4Z"/>', circle: '<circle cx="8" cy="8" r="4.5"/>', x: '<path d="M4 4 12 12M12 4 4 12"/>', line: '<path d="M0 8H16"/>', dashed: '<path d="M0 8H16" stroke-dasharray="4 3"/>', band: '<path d="M1 8H15" stroke-width="6" stroke-opacity=".3"/>' };

/** An entry of a legend: a sign in a colour, hollow or not, and words. */
function legendEntry(shape, colour, text, hollow) {
  const entry = element("span", {}, "");
  entry.innerHTML = `<svg width="16" height="16" aria-hidden="true" stroke="${escaped(colour)}" stroke-width="1.8" fill="${hollow ? "none" : escaped(colour)}">${SHAPES[shape]}</svg>`;
  entry.append(text);
  return entry;
}

/** Entries for the GPUs of some rows. */
function gpuLegend(gpus) {
  return gpus.map((number) => legendEntry("circle", seen(content.gpus[number].colour), gpuWords(content.gpus[number])));
}

/** Embed every plot; resolves when all are drawn. */
async function embedPlots() {
  const items = JSON.parse(byId("plots").textContent);
  for (const [name, item] of Object.entries(items)) {
    await Bokeh.embed.embed_item(item, `plot-${name}`);
    const document = Bokeh.documents[Bokeh.documents.length - 1];
    plots[name] = document.roots()[0];
    paint(plots[name]);
  }
}
