// Measured, composed and predicted passes of every network, those in fp32 beside all others.
const WAYS = [
  { name: "sum of its calls", columns: { energy: "summed_energy_j", time: "summed_time_s" }, marker: "x", colour: () => style("warn"), shape: "x" },
  { name: "composed of measured calls", columns: { energy: "composed_energy_j", time: "composed_time_s" }, marker: "circle", colour: () => style("ink"), shape: "circle" },
  { name: "predicted, network held out", columns: { energy: "left_out_energy_j", time: "left_out_time_s" }, marker: "circle", hollow: true, colour: () => style("accent"), shape: "circle" },
];
const SIDES = [
  ["on", "in tf32 or 16 bits", (execution) => execution !== "fp32"],
  ["off", "in fp32", (execution) => execution === "fp32"],
];
const NETWORK_ROW_PX = 21;

function setUpNetworks() {
  const withRows = content.gpus.map((gpu, number) => number).filter((gpu) => rowsMeasured((row) => rows.gpu[row] === gpu).length);
  const offered = withRows.length ? withRows : [...content.gpus.keys()];
  const best = offered.find((gpu) => !content.gpus[gpu].virtual) ?? offered[0];
  fill(byId("networks-gpu"), offered.map((gpu) => [gpu, gpuWords(content.gpus[gpu])]), best);
  fill(byId("networks-pass"), PASSES.map((pass) => [pass, pass]));
  for (const name of ["gpu", "point", "pass", "quantity"]) byId(`networks-${name}`).addEventListener("change", showNetworks);
}

function rowsMeasured(keep) {
  const found = [];
  for (let row = 0; row < rowCount; row++) if (Number.isFinite(rows.measured_time_s[row]) && keep(row)) found.push(row);
  return found;
}

function showNetworks() {
  const gpu = Number(byId("networks-gpu").value);
  const { points, reference } = content.gpus[gpu];
  fill(byId("networks-point"), points.map((point, number) => [number, point.name]), byId("networks-point").dataset.gpu === String(gpu) ? undefined : reference);
  byId("networks-point").dataset.gpu = gpu;
  const point = Number(byId("networks-point").value);
  const [pass, quantityName] = [byId("networks-pass").value, byId("networks-quantity").value];
  const unit = quantityName === "time" ? "s" : "J";
  const measured = rows[`measured_${quantityName}_${unit.toLowerCase()}`];
  const error = rows[`measured_${quantityName}_error_${unit.toLowerCase()}`];
  const all = rowsMeasured((row) => rows.gpu[row] === gpu && rows.point[row] === point && questionAt(row).pass === pass && Number.isFinite(measured[row]));
  const found = all.filter((row) => WAYS.some((way) => Number.isFinite(rows[way.columns[quantityName]][row])));
  let shown = 0;
  for (const [side, words, keep] of SIDES) {
    const own = found.filter((row) => keep(questionAt(row).execution)).sort((a, b) => measured[b] - measured[a]);
    byId(`networks-side-${side}`).hidden = !own.length;
    shown += own.length ? 1 : 0;
    if (own.length) drawNetworks([side, words], own, { measured, error, quantityName, unit, pass, gpu });
    else describe(`networks-${side}`, `No network was measured whole there ${words}.`);
  }
  byId("networks-legend").replaceChildren(
    legendEntry("band", style("quiet"), "measured, 95 % interval"),
    ...WAYS.map((way) => legendEntry(way.shape, way.colour(), way.name, way.hollow)),
  );
  const without = all.length - found.length;
  byId("networks-note").textContent = [
    shown ? "" : "No network was measured whole there.",
    shown === 1 ? `Measured ${SIDES.find(([, , keep]) => found.some((row) => keep(questionAt(row).execution)))[1]} alone.` : "",
    without ? `${counted(without, "network")} of ${all.length} cannot be compared: the host's speed varied while they were measured, or a call has no cost.` : "",
  ].filter(Boolean).join(" ");
}

/** Names that are as short as they can be and still tell networks apart: by name, batch and number format, or all of it. */
function shortNames(networks) {
  const ways = [(one) => one.name, (one) => `${one.name}, batch ${one.input.replace(/×[^,]*/, "")}`, (one) => `${one.name} ${one.input}`];
  const alone = (one, way) => networks.every((other) => other === one || way(other) !== way(one));
  return networks.map((one) => (ways.find((way) => alone(one, way)) || ways[2])(one));
}

function drawNetworks([side, words], own, { measured, error, quantityName, unit, pass, gpu }) {
  const networks = own.map((row) => content.networks[questionAt(row).network]);
  const names = shortNames(networks);
  const plot = plots[`networks-${side}`];
  plot.left[0].major_label_text_font_size = "12px";
  plot.setv({ height: 90 + NETWORK_ROW_PX * own.length });
  plot.y_range.factors = names;
  const marks = own.flatMap((row, at) => WAYS.map((way) => {
    const value = rows[way.columns[quantityName]][row];
    return {
      x: 100 * (value / measured[row] - 1), y: names[at], colour: way.colour(), fill: way.hollow ? style("paper") : way.colour(), size: 8, label: "", marker: way.marker,
      said: `<b>${escaped(names[at])}</b><br>measured: ${quantity(measured[row], unit)}${Number.isFinite(error[row]) ? ` ±${percent(error[row] / measured[row])}` : ""}<br>${way.name}: ${quantity(value, unit)}, ${percent(value / measured[row] - 1)} off`,
    };
  })).filter((mark) => Number.isFinite(mark.x));
  give(`networks-${side}`, `networks-${side}-points`, marks);
  give(`networks-${side}`, `networks-${side}-whiskers`, own.map((row, at) => {
    const half = (100 * error[row]) / measured[row];
    return { x0: -half, x1: half, y0: names[at], y1: names[at], colour: style("quiet") };
  }).filter((one) => Number.isFinite(one.x0)));
  plot.below[0].axis_label = `${quantityName} off the measured (%)`;
  const typical = WAYS.map((way) => {
    const errors = own.map((row) => Math.abs(rows[way.columns[quantityName]][row] / measured[row] - 1)).filter(Number.isFinite);
    return errors.length ? `${way.name} ${percent(median(errors))}` : null;
  }).filter(Boolean);
  describe(`networks-${side}`, `${counted(own.length, "network")} on ${content.gpus[gpu].label} in ${pass}, ${words}: median error of ${quantityName}: ${typical.join(", ")}.`);
}
