// Errors, intervals, flags, and what was left out.
const trustPoints = content.trust.points;
const trustColumns = Object.fromEntries(["gpu", "pass", "execution", "point", "class", "operation", "time", "predicted_time", "energy", "predicted_energy"].map((name) => [name, unpack(trustPoints[name])]));

function setUpTrust() {
  const best = measuredGpus[0] ?? 0;
  fill(byId("trust-gpu"), content.gpus.map((gpu, number) => [number, gpuWords(gpu)]), best);
  fill(byId("trust-pass"), PASSES.map((pass) => [pass, pass]));
  for (const name of ["gpu", "pass", "quantity", "class"]) byId(`trust-${name}`).addEventListener("change", showTrust);
}

function showTrust() {
  const gpu = Number(byId("trust-gpu").value);
  const [pass, quantityName] = [byId("trust-pass").value, byId("trust-quantity").value];
  if (!content.gpus[gpu]) return;
  const { label } = content.gpus[gpu];
  const own = (one) => one.gpu === label && one.pass === pass && one.quantity === quantityName;
  const classes = content.trust.classes.filter(own);
  const networks = content.trust.networks.filter(own);
  fill(byId("trust-class"), [["all", "all operations"], ...classes.map((one) => [one.class, one.class])]);
  showTrustLead(label, pass, quantityName, networks, classes);
  fillTable(byId("trust-networks"), [["Composed of", "text"], ["passes"], ["half are within"], ["19 of 20 are within"], ["their sum: half within"], ["90 % intervals held"]], networks.map((one) => [
    one.source === "measured" ? "measured calls" : "predictions, the network held out", one.rows.toLocaleString("en"), percent(one.median), percent(one.p95), percent(one.sum), percent(one.coverage),
  ]));
  fillTable(byId("trust-classes"), [["Operation", "text"], ["of all energy"], ["half within"], ["19 of 20"], ["90 % held"], ["tried"]], classes.map((one) => [
    one.class, percent(one.share), percent(one.median), percent(one.p95), percent(one.coverage), one.rows.toLocaleString("en"),
  ]));
  showHeldOut(gpu, pass, quantityName);
  showFlags(label);
}

function showTrustLead(label, pass, quantityName, networks, classes) {
  const predicted = networks.find((one) => one.source === "predicted");
  const weighted = classes.filter((one) => one.share).reduce((sum, one) => sum + one.share * one.mean, 0);
  const shares = classes.reduce((sum, one) => sum + (one.share || 0), 0);
  byId("trust-lead").textContent = [
    predicted
      ? `On ${label} in ${pass}, half of ${counted(predicted.rows, "pass", "passes")} of held-out networks have an error of at most ${percent(predicted.median)} in ${quantityName}, 19 of 20 of at most ${percent(predicted.p95)}.`
      : `No network was left out on ${label} in ${pass}: the errors of whole networks are unknown.`,
    shares ? `Weighted by energy, its operations have a mean error of ${percent(weighted / shares)}.` : "",
  ].filter(Boolean).join(" ");
}

function showHeldOut(gpu, pass, quantityName) {
  const [x, y] = [trustColumns[quantityName], trustColumns[`predicted_${quantityName}`]];
  const passNumber = ["inference", "training"].indexOf(pass);
  const only = byId("trust-class").value;
  const unit = quantityName === "time" ? "s" : "J";
  const found = [];
  for (let at = 0; at < x.length; at++) {
    const name = trustPoints.classes[trustColumns.class[at]];
    if (trustColumns.gpu[at] === gpu && trustColumns.pass[at] === passNumber && x[at] > 0 && y[at] > 0 && (only === "all" || name === only)) {
      found.push({
        x: x[at], y: y[at], colour: style("accent"),
        said: `<b>${escaped(name)}</b> ${escaped(trustPoints.words[trustColumns.operation[at]])}<br>${escaped(trustPoints.points[trustColumns.point[at]])}, ${trustPoints.executions[trustColumns.execution[at]]}<br>measured ${quantity(x[at], unit)}, predicted ${quantity(y[at], unit)}, ${percent(y[at] / x[at] - 1)} off`,
      });
    }
  }
  give("heldout", "heldout-points", found);
  const ends = found.flatMap((one) => [one.x, one.y]);
  const [low, high] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [1, 10];
  give("heldout", "heldout-diagonal", [{ xs: [low, high], ys: [low, high], colour: style("quiet") }]);
  plots.heldout.below[0].axis_label = `measured (${unit}, logarithmic)`;
  plots.heldout.left[0].axis_label = `predicted, its kind held out (${unit}, logarithmic)`;
  describe("heldout", `Predicted against measured ${quantityName} of ${counted(found.length, "operation")} of ${content.gpus[gpu].label} in ${pass}; on the line, both are equal.`);
}

function showFlags(label) {
  const { counts, left_out: leftOut } = content.trust;
  const own = counts.gpus[label];
  const lines = [];
  if (own) {
    const flags = Object.entries(own.flags).sort((a, b) => b[1] - a[1]);
    const matters = flags.filter(([flag]) => counts.meanings[flag].learnt !== "yes");
    byId("trust-flags-lead").textContent =
      `${percent((own.flagged || 0) / own.rows)} of ${counted(own.rows, "row")} of ${label} have a flag. ` +
      (matters.length ? `Flags that exclude a row from training, always or under a condition: ${sentenceList(matters.map(([flag, number]) => `${flagWords(flag)} (${percent(number / own.rows)})`))}. The others exclude nothing.` : "None of them excludes a row from training.");
    fillTable(byId("trust-flags"), [["Flag", "text"], ["rows"], ["share"], ["used in training", "text"], ["meaning", "text wrap"]], flags.map(([flag, number]) => [
      flagWords(flag), number.toLocaleString("en"), percent(number / own.rows), counts.meanings[flag].learnt.replaceAll("`", "").replaceAll("_", " "), counts.meanings[flag].meaning,
    ]));
    lines.push(...Object.entries(own.not_learnt || {}).map(([why, number]) => `${counted(number, "operation")} at an operating point: ${why}.`));
    if (own.missing) lines.push(`${counted(own.missing, "operation or network", "operations or networks")} of the campaign were not measured.`);
    if (own.failed) lines.push(`${counted(own.failed, "measurement")} failed or ran out of memory.`);
  } else {
    // as where a campaign has no rows of this GPU at all
    byId("trust-flags-lead").textContent = `No measurements of ${label} are in the dataset.`;
    fillTable(byId("trust-flags"), [["Flag", "text"]], []);
  }
  byId("trust-left-out").replaceChildren(...[...lines, ...leftOut].map((text) => element("li", {}, text)));
}
