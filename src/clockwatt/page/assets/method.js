// How each GPU was measured.
function setUpMethod() {
  fill(byId("method-gpu"), content.gpus.map((gpu, number) => [number, gpuWords(gpu)]), measuredGpus[0] ?? 0);
  byId("method-gpu").addEventListener("change", showMethod);
}

function showMethod() {
  const gpu = content.gpus[Number(byId("method-gpu").value)];
  if (!gpu) return;
  const found = content.method[gpu.label];
  byId("method-lead").textContent = gpu.virtual
    ? `${gpu.label} is a model of ${gpu.name} in its own time: nothing of it was measured on real hardware.`
    : `${gpu.name}: ${counted(found.operations, "measurement")} of operations in ${counted(found.sessions, "session")}.`;
  const facts = [
    ["Cards", counted(found.cards.length, "card")],
    ["Hosts", [found.hosts > 1 ? counted(found.hosts, "host") : "", sentenceList(found.processors)].filter(Boolean).join(", ") || counted(found.hosts, "host")],
    ["Temperature", found.temperature_c ? `${found.temperature_c[0]} to ${found.temperature_c[1]} °C` : "not known"],
    ["Idle power", found.idle.length ? found.idle.map((one) => `${quantity(one.power_w, "W")} at ${one.point}`).slice(0, 4).join("; ") : "not calibrated"],
    ["Power from", Object.entries(found.estimators).map(([name, number]) => `${name} (${number.toLocaleString("en")} rows)`).join(", ") || "nothing"],
    ["Repeats within", Object.entries(found.repeatability).map(([name, value]) => `${percent(value)} where limited by the ${name.replace("_", " ")}`).join(", ") || "not calibrated"],
    ...Object.entries(found.versions).filter(([, values]) => values.length).map(([name, values]) => [name, values.join(", ")]),
  ];
  byId("method-facts").replaceChildren(...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
  fillTable(byId("method-sensors"), [["Sensor", "text"], ["new value every"], ["jitter"], ["averages over"]], found.sensors.map((one) => [
    one.sensor, quantity(one.period_s, "s"), quantity(one.period_error_s, "s"), quantity(one.window_s, "s"),
  ]));
  fillTable(byId("method-cards"), [["Card", "text"], ["time"], ["power"]], found.cards.map((card) => [
    element("span", { title: card.card }, card.card.slice(0, 12)), ...[card.time, card.power].map((factor) => (factor === null ? "–" : percent(factor - 1))),
  ]));
  const trace = found.transient;
  byId("method-transient").textContent = trace ? `Runs of the heaviest fixed operation after a rest, at ${found.point}: line: ring buffer of the driver; circles: instantaneous power.` : "Not calibrated.";
  const column = (xs, ys) => ({ x: xs || [], y: ys || [], colour: (xs || []).map(() => "") });
  give("transient", "transient-ring", column(trace?.ring_s, trace?.ring_w));
  give("transient", "transient-fast", column(trace?.fast_s, trace?.fast_w));
  describe("transient", trace ? `Board power of ${gpu.label} from ${quantity(Math.min(...trace.ring_w), "W")} at rest to ${quantity(Math.max(...trace.ring_w), "W")} under load.` : "Not calibrated.");
  showPolling(gpu, found.polling);
}

const LANES = { ring: { words: "ring buffer of the driver", shape: "circle", colour: "accent" }, fast: { words: "polled by the logger", shape: "square", colour: "warn" } };

/** Jitter over time of what read the power, by lane. */
function showPolling(gpu, polling) {
  const told = [];
  const jitters = Object.fromEntries(Object.keys(LANES).map((name) => [name, polling?.lanes[name] ? [...unpack(polling.lanes[name].jitter_s)] : []]));
  const [scale, prefix] = prefixOf(Math.max(0, ...Object.values(jitters).flat().map(Math.abs)) || 1e-3);
  plots.polling.left[0].axis_label = `off the median interval (${prefix}s)`;
  for (const [name, lane] of Object.entries(LANES)) {
    const own = polling?.lanes[name];
    const times = own ? [...unpack(own.time_s)] : [];
    give("polling", `polling-${name}`, { x: times, y: jitters[name].map((one) => one / scale), colour: times.map(() => style(lane.colour)) });
    if (own) told.push(`${lane.words}, every ${quantity(own.interval_s, "s")}, 95 % of ${own.readings.toLocaleString("en")} within ${quantity(own.off_95_s, "s")} of that`);
  }
  const text = told.length ? `While networks ran at ${polling.point}: ${told.join("; ")}. If there are many, those farthest from the median are drawn.` : `No readings of ${gpu.label} are here${gpu.virtual ? "." : ": shipped measurements are without telemetry."}`;
  byId("method-polling").textContent = text;
  byId("method-polling-legend").replaceChildren(...(told.length ? Object.values(LANES).map((lane) => legendEntry(lane.shape, style(lane.colour), lane.words)) : []));
  byId("plot-polling").hidden = !told.length;
  describe("polling", `Jitter of readings over time, ${gpu.label}. ${text}`);
}
