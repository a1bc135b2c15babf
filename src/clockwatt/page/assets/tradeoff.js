// Energy against time: points of one GPU that are within error of each other are one, clocks are written beside them.

/** Rows of a GPU in the order of its clocks and limits. */
function alongPoints(found) {
  const key = (row) => [pointOf(row).limit_w ?? Infinity, pointOf(row).clock_mhz, pointOf(row).memory_mhz ?? Infinity];
  return [...found].sort((a, b) => {
    const [one, other] = [key(a), key(b)];
    const at = one.findIndex((value, index) => value !== other[index]);
    return at < 0 ? 0 : one[at] - other[at];
  });
}

/** Neighbouring rows of a GPU whose time and energy are within error, as groups. */
function merged(found) {
  const groups = [];
  for (const row of alongPoints(found)) {
    const group = groups[groups.length - 1];
    const near = (a, b) => Math.abs(a / b - 1) <= content.same_gpu_error[rows.measured_point[row] && rows.measured_point[group[0]] ? "measured" : "extrapolated"];
    if (group && near(rows.time_s[row], rows.time_s[group[0]]) && near(rows.energy_j[row], rows.energy_j[group[0]])) group.push(row);
    else groups.push([row]);
  }
  return groups;
}

function groupWords(group) {
  const [first, last] = [pointOf(group[0]), pointOf(group[group.length - 1])];
  return group.length === 1 ? first.name : `${first.name} to ${last.name}`;
}

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function showTradeoff(asked, answer) {
  const found = asked.question.rows.filter((row) => asked.gpus.includes(rows.gpu[row]) && Number.isFinite(rows.energy_j[row]));
  const shownGpus = [...new Set(found.map((row) => rows.gpu[row]))];
  const [timeScale, timePrefix] = prefixOf(median(found.map((row) => rows.time_s[row])) || 1);
  const [energyScale, energyPrefix] = prefixOf(median(found.map((row) => rows.energy_j[row])) || 1);
  const best = answer.refused ? undefined : answer.ordered[0];
  const groups = shownGpus.flatMap((gpu) => merged(found.filter((row) => rows.gpu[row] === gpu)).map((group) => ({ gpu, group })));
  for (const one of groups) {
    one.x = mean(one.group.map((row) => rows.time_s[row])) / timeScale;
    one.y = mean(one.group.map((row) => rows.energy_j[row])) / energyScale;
  }
  const front = groups
    .filter((one) => !groups.some((other) => other !== one && other.x <= one.x && other.y <= one.y && (other.x < one.x || other.y < one.y)))
    .sort((a, b) => a.x - b.x);
  const colour = (one) => seen(content.gpus[one.gpu].colour);
  give("tradeoff", "tradeoff-points", groups.map((one) => ({
    x: one.x, y: one.y, colour: colour(one), fill: front.includes(one) ? colour(one) : style("paper"),
    size: one.group.includes(best) ? 15 : 9, label: "", marker: "circle",
    said: one.group.map((row) => tradeoffSaid(row, row === best)).join("<br>"),
  })));
  const whiskers = groups.flatMap((one) => {
    const row = one.group[Math.floor(one.group.length / 2)];
    const [x0, x1] = [rows.time_low_s[row] / timeScale, rows.time_high_s[row] / timeScale];
    const [y0, y1] = [rows.energy_low_j[row] / energyScale, rows.energy_high_j[row] / energyScale];
    return [{ x0, x1, y0: one.y, y1: one.y, colour: colour(one) }, { x0: one.x, x1: one.x, y0, y1, colour: colour(one) }].filter((line) => Number.isFinite(line.x0 + line.x1 + line.y0 + line.y1));
  });
  give("tradeoff", "tradeoff-whiskers", whiskers);
  give("tradeoff", "tradeoff-lines", shownGpus.map((gpu) => {
    const own = groups.filter((one) => one.gpu === gpu);
    return { xs: own.map((one) => one.x), ys: own.map((one) => one.y), colour: seen(content.gpus[gpu].colour) };
  }));
  give("tradeoff", "tradeoff-front", front.length > 1 ? [{ xs: front.map((one) => one.x), ys: front.map((one) => one.y), colour: style("accent") }] : []);
  give("tradeoff", "tradeoff-labels", placed(labelled(groups, front, best), groups, whiskers).map((one) => ({ ...one, colour: style("quiet") })));
  const plot = plots.tradeoff;
  plot.below[0].axis_label = `time per pass (${timePrefix}s)`;
  plot.left[0].axis_label = `energy per pass (${energyPrefix}J)`;
  byId("tradeoff-lead").textContent =
    `${networkWords(asked.question.network)}, ${asked.question.pass}, ${asked.question.execution}. Lower left is better. ` +
    (found.length ? "Filled: no other takes less time and less energy. Crosses: 90 % intervals; errors at the points of one GPU are mostly the same." : "Nothing to draw: no energy is known here.") +
    (groups.length < found.length ? ` ${found.length} operating points are ${groups.length}: those within error of each other are one.` : "");
  byId("tradeoff-legend").replaceChildren(...gpuLegend(shownGpus), legendEntry("band", style("accent"), "the front"));
  describe("tradeoff", `Energy against time of ${networkWords(asked.question.network)}: ${groups.map((one) => `${content.gpus[one.gpu].label} at ${groupWords(one.group)}, ${digits(one.x)} ${timePrefix}s and ${digits(one.y)} ${energyPrefix}J`).slice(0, 12).join("; ")}.`);
}

/** Those whose clock is written: all if they are few, else those of the front, the ends of each GPU and the best. */
function labelled(groups, front, best) {
  if (groups.length <= 12) return groups;
  const ends = groups.filter((one, at) => !groups[at - 1] || groups[at - 1].gpu !== one.gpu || !groups[at + 1] || groups[at + 1].gpu !== one.gpu);
  const some = front.filter((_, at) => front.length <= 6 || at % Math.ceil(front.length / 6) === 0);
  return groups.filter((one) => ends.includes(one) || some.includes(one) || one.group.includes(best));
}

const PLACES = [[11, -10, "left"], [11, 12, "left"], [-11, -10, "right"], [-11, 12, "right"], [11, 0, "left"], [-11, 0, "right"], [11, -24, "left"], [11, 26, "left"]];

/**
 * Labels where they touch neither each other nor a point, nor lie nearer to another point than to their own; one that finds
 * no such place is left out, hovering tells it.
 */
function placed(wanted, groups, whiskers) {
  const plot = plots.tradeoff;
  const [width, height] = [plot.inner_width || Math.max(byId("plot-tradeoff").clientWidth - 75, 200), plot.inner_height || 365];
  // as the plot's own ranges will be: all that is drawn, and a padding
  const scaled = (values, padding) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => ((value - low) / (high - low || 1) + padding / 2) / (1 + padding);
  };
  const x = scaled([...groups.map((one) => one.x), ...whiskers.flatMap((one) => [one.x0, one.x1])], plot.x_range.range_padding);
  const y = scaled([...groups.map((one) => one.y), ...whiskers.flatMap((one) => [one.y0, one.y1])], plot.y_range.range_padding);
  const at = (one) => ({ x: x(one.x) * width, y: (1 - y(one.y)) * height });
  const taken = groups.map((one) => ({ left: at(one).x - 6, right: at(one).x + 6, top: at(one).y - 6, bottom: at(one).y + 6 }));
  const found = [];
  for (const one of wanted) {
    const text = groupWords(one.group);
    for (const [dx, dy, align] of PLACES) {
      const left = at(one).x + dx - (align === "right" ? 8 * text.length : 0);
      const box = { left, right: left + 8 * text.length, top: at(one).y + dy - 8, bottom: at(one).y + dy + 8 };
      const inside = box.left > 0 && box.right < width;
      const away = (other) => Math.hypot(at(other).x - at(one).x, at(other).y - at(one).y - dy);
      const own = groups.every((other) => other === one || away(other) > away(one));
      if (inside && own && !taken.some((other) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)) {
        taken.push(box);
        found.push({ x: one.x, y: one.y, text, dx, dy, align });
        break;
      }
    }
  }
  return found;
}

function tradeoffSaid(row, chosen) {
  const times = interval(rows.time_low_s[row], rows.time_high_s[row], "s");
  const energies = interval(rows.energy_low_j[row], rows.energy_high_j[row], "J");
  return [
    `<b>${escaped(gpuWords(gpuOf(row)))} at ${escaped(atPoint(pointOf(row)))}</b>${chosen ? " (the answer)" : ""}`,
    `${quantity(rows.time_s[row], "s")}${times ? ` (${times})` : ""}`,
    `${quantity(rows.energy_j[row], "J")}${energies ? ` (${energies})` : ""}`,
    `${percent(rows.measured_share[row])} of its calls measured there`,
  ].join("<br>");
}
