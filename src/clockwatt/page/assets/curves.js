// Time, power, energy and energy × time against clock or power limit: measured whole solid, predicted dashed.
const CURVES = {
  time: { unit: "s", predicted: (row) => rows.time_s[row], measured: (row) => rows.measured_time_s[row], error: (row) => rows.measured_time_error_s[row] },
  power: { unit: "W", predicted: (row) => rows.power_w[row], measured: (row) => rows.measured_power_w[row], error: () => NaN },
  energy: { unit: "J", predicted: (row) => rows.energy_j[row], measured: (row) => rows.measured_energy_j[row], error: (row) => rows.measured_energy_error_j[row] },
  edp: { unit: "J·s", predicted: (row) => rows.energy_j[row] * rows.time_s[row], measured: (row) => rows.measured_energy_j[row] * rows.measured_time_s[row], error: () => NaN },
};
const TITLES = { time: "time per pass", power: "mean power", energy: "energy per pass", edp: "energy × time" };

/** What operating points can be drawn against: settings that vary while the others stay. */
function curveAxes(gpus) {
  const points = gpus.flatMap((gpu) => content.gpus[gpu].points);
  const axes = [["clock", "SM clock"]];
  if (points.some((point) => point.limit_w !== null)) axes.push(["limit", "power limit"]);
  return axes;
}

/** Lines of a GPU: rows that differ in nothing but what is drawn against, most first. */
function curveLines(found, axis) {
  const lines = new Map();
  for (const row of found) {
    const point = pointOf(row);
    if (axis === "limit" && point.limit_w === null) continue;
    const kept = axis === "limit" ? [point.memory_mhz, point.clock_mhz] : [point.memory_mhz, point.limit_w];
    const key = [rows.gpu[row], ...kept].join("/");
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(row);
  }
  const at = (row) => (axis === "limit" ? pointOf(row).limit_w : pointOf(row).clock_mhz);
  return [...lines.values()].map((line) => line.sort((a, b) => at(a) - at(b)).map((row) => ({ row, x: at(row) })));
}

function showCurves(asked) {
  const axes = curveAxes(asked.gpus);
  fill(byId("curves-axis"), axes);
  byId("curves-axis-label").hidden = axes.length < 2;
  const axis = byId("curves-axis").value;
  const found = asked.question.rows.filter((row) => asked.gpus.includes(rows.gpu[row]));
  const lines = curveLines(found, axis);
  const flat = [...new Set(lines.filter((line) => line.length === 1).map(([one]) => gpuOf(one.row).label))];
  byId("curves-lead").textContent =
    "Solid: the network measured whole, with 95 % intervals. Dashed: predicted, as in the answer above." +
    (flat.length ? ` ${sentenceList(flat)}: one operating point, so no line.` : "");
  byId("curves-legend").replaceChildren(
    ...gpuLegend([...new Set(found.map((row) => rows.gpu[row]))]),
    legendEntry("line", style("quiet"), "measured whole"), legendEntry("dashed", style("quiet"), "predicted"),
  );
  for (const [name, curve] of Object.entries(CURVES)) drawCurve(name, curve, lines, axis);
}

function drawCurve(name, curve, lines, axis) {
  const all = lines.flat().flatMap(({ row }) => [curve.predicted(row), curve.measured(row)]).filter(Number.isFinite);
  const [scale, prefix] = all.length ? prefixOf(median(all)) : [1, ""];
  const colour = (line) => seen(gpuOf(line[0].row).colour);
  const points = (line, value) => line.map((one) => ({ ...one, y: value(one.row) / scale })).filter((one) => Number.isFinite(one.y));
  const asLine = (value) => lines.map((line) => ({ colour: colour(line), own: points(line, value) })).map(({ colour, own }) => ({ xs: own.map((one) => one.x), ys: own.map((one) => one.y), colour }));
  give(`curve-${name}`, `curve-${name}-predicted`, asLine(curve.predicted));
  give(`curve-${name}`, `curve-${name}-measured`, asLine(curve.measured));
  const marks = (line, value, hollow) => points(line, value).map((one) => ({
    x: one.x, y: one.y, colour: colour(line), fill: hollow ? style("paper") : colour(line), size: hollow ? 6 : 8, label: "", marker: "circle",
    said: `<b>${escaped(gpuWords(gpuOf(one.row)))} at ${escaped(atPoint(pointOf(one.row)))}</b><br>${hollow ? "predicted" : "measured"}: ${quantity(value(one.row), curve.unit)}`,
  }));
  give(`curve-${name}`, `curve-${name}-points`, lines.flatMap((line) => [...marks(line, curve.predicted, true), ...marks(line, curve.measured, false)]));
  give(`curve-${name}`, `curve-${name}-whiskers`, lines.flatMap((line) => points(line, curve.measured).map((one) => {
    const error = curve.error(one.row) / scale;
    return { x0: one.x, x1: one.x, y0: one.y - error, y1: one.y + error, colour: colour(line) };
  }).filter((one) => Number.isFinite(one.y0))));
  const plot = plots[`curve-${name}`];
  plot.left[0].axis_label = `${TITLES[name]} (${prefix}${curve.unit})`;
  plot.below[0].axis_label = axis === "limit" ? "power limit (W)" : "SM clock asked for (MHz)";
  describe(`curve-${name}`, `${TITLES[name]} against ${axis === "limit" ? "power limit" : "clock"}: ${lines.slice(0, 6).map((line) => `${gpuOf(line[0].row).label} from ${quantity(curve.predicted(line[0].row), curve.unit)} at ${line[0].x} to ${quantity(curve.predicted(line[line.length - 1].row), curve.unit)} at ${line[line.length - 1].x}`).join("; ")}.`);
}
