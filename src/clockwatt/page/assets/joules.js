// Energy of the chosen pass: modules above, operations below, as wide as their share.
const CLASS_COLOURS = ["#0b6b5d", "#4a6fa5", "#c08a2b", "#8c5a7d", "#5b8c3a", "#b0563a"];
const LABEL_PX = 7.2;

function joulesOf(question, gpu) {
  const shares = (content.joules.shares[question.number] || {})[gpu];
  const parts = content.joules.parts[`${content.networks[question.network].id}/${question.pass}`];
  if (!shares || !parts) return [];
  const [module, operation, calls] = [unpack(parts.module), unpack(parts.operation), unpack(parts.calls)];
  const [share, measured] = [unpack(shares.share), unpack(shares.measured)];
  return Array.from(share, (value, at) => {
    const [name, words] = content.joules.operations[operation[at]];
    return { path: content.joules.modules[module[at]], name, words, calls: calls[at], share: value, measured: Boolean(measured[at]) };
  }).filter((part) => part.share > 0);
}

/** Blocks of one level: parts that follow each other below one head of the level above. */
function blocksOf(parts, key) {
  const groups = new Map();
  for (const part of parts) {
    const name = key(part);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(part);
  }
  return [...groups].map(([name, own]) => ({ name, own, share: own.reduce((sum, part) => sum + part.share, 0) }));
}

function showJoules(asked, answer) {
  const options = [...new Set(asked.question.rows.map((row) => rows.gpu[row]))];
  const best = answer.refused ? options[0] : rows.gpu[answer.ordered[0]];
  const select = byId("joules-gpu");
  const chosen = options.includes(Number(select.dataset.chosen)) ? Number(select.dataset.chosen) : best;
  fill(select, options.map((gpu) => [gpu, gpuWords(content.gpus[gpu])]), chosen);
  const gpu = Number(select.value);
  const parts = joulesOf(asked.question, gpu);
  const row = asked.question.rows.find((one) => rows.gpu[one] === gpu && rows.point[one] === content.gpus[gpu]?.reference);
  const where = content.gpus[gpu] && content.gpus[gpu].reference !== null ? atPoint(content.gpus[gpu].points[content.gpus[gpu].reference]) : "";
  const dynamic = parts.reduce((sum, part) => sum + part.share, 0);
  byId("joules-lead").textContent = parts.length
    ? `A pass of ${networkWords(asked.question.network)} (${asked.question.pass}) on ${content.gpus[gpu].label} at ${where} takes ${quantity(rows.energy_j[row], "J")}; ${percent(1 - dynamic)} of it is idle energy, the rest is dynamic energy of its calls.`
    : "Unknown: the energy of this pass was not predicted.";
  const classes = blocksOf(parts, (part) => part.name).sort((a, b) => b.share - a.share);
  const colours = new Map(classes.map((one, at) => [one.name, CLASS_COLOURS[at] ?? "#8a919c"]));
  drawIcicle(parts, dynamic, colours, row);
  fillTable(byId("joules-classes"), [["Operation", "text"], ["of the pass's energy"], ["calls"], ["measured there"]], [
    ...classes.slice(0, 10).map((one) => [
      legendEntry("circle", seen(colours.get(one.name)), one.name), percent(one.share), one.own.reduce((sum, part) => sum + part.calls, 0).toLocaleString("en"),
      percent(one.own.filter((part) => part.measured).reduce((sum, part) => sum + part.share, 0) / one.share),
    ]),
    ...(parts.length ? [["idle power over the pass", percent(1 - dynamic), "", ""]] : []),
  ]);
  describe("joules", parts.length ? `Shares of energy: ${classes.slice(0, 5).map((one) => `${one.name} ${percent(one.share)}`).join(", ")}, idle power ${percent(1 - dynamic)}.` : "Nothing to show.");
}

function drawIcicle(parts, dynamic, colours, row) {
  const width = byId("plot-joules").clientWidth || 900;
  const [blocks, texts] = [[], []];
  const total = Number.isFinite(rows.energy_j[row]) ? rows.energy_j[row] : NaN;
  const draw = (left, share, level, name, fill, alpha, said) => {
    blocks.push({ left, right: left + share, bottom: 3 - level, top: 3.95 - level, fill, alpha, said: `<b>${escaped(name || "the network itself")}</b><br>${percent(share)} of the pass, ${quantity(total * share, "J")}${said}` });
    const room = Math.floor((share * width - 8) / LABEL_PX);
    if (room >= 3) texts.push({ x: left, y: 3.475 - level, text: name.length > room ? `${name.slice(0, room - 1)}…` : name, colour: alpha > 0.5 ? "#ffffff" : style("ink") });
  };
  const first = (path) => path.split(".")[0];
  const [grey, classFill] = [style("quiet"), (name) => colours.get(name)];
  if (parts.length) draw(0, dynamic, 0, "calls", grey, 0.25, "");
  if (dynamic < 1 && parts.length) {
    draw(dynamic, 1 - dynamic, 0, "idle power", grey, 0.12, "<br>power of the card with nothing to do, over the whole pass");
  }
  let left = 0;
  for (const outer of blocksOf(parts, (part) => first(part.path))) {
    draw(left, outer.share, 1, outer.name, grey, 0.2, "");
    for (const inner of blocksOf(outer.own, (part) => part.path)) {
      draw(left, inner.share, 2, inner.name.split(".").slice(1).join(".") || inner.name, grey, 0.14, "");
      for (const part of [...inner.own].sort((a, b) => b.share - a.share)) {
        draw(left, part.share, 3, part.name, classFill(part.name), 0.92, `<br>${escaped(part.words)}<br>${counted(part.calls, "call")}, ${part.measured ? "measured" : "predicted"}`);
        left += part.share;
      }
    }
  }
  give("joules", "joules-blocks", blocks);
  give("joules", "joules-texts", texts);
}
