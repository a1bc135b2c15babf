// The question and its answer in a sentence.
const form = byId("chooser");
const state = { question: null, gpus: [], answer: null };

/** Entries of "choose among": kinds of GPU are never ranked together unless the reader says so. */
function amongOptions() {
  const options = [];
  if (measuredGpus.length) options.push(["measured", "measured GPUs", measuredGpus]);
  if (virtualGpus.length) options.push(["virtual", "virtual GPUs", virtualGpus]);
  content.gpus.forEach((gpu, number) => options.push([`gpu-${number}`, `${gpuWords(gpu)} only`, [number]]));
  if (measuredGpus.length && virtualGpus.length) {
    options.push(["both", "measured and virtual GPUs together", [...content.gpus.keys()]]);
  }
  return options;
}

/** Fill the form, and begin with a question that has operating points to choose from, if any has. */
function setUpForm() {
  fill(form.elements.network, content.networks.map((network, number) => [number, `${network.name}  ${network.input}`]));
  fill(form.elements.among, amongOptions().map(([key, text]) => [key, text]));
  const rich = content.gpus.findIndex((gpu) => !gpu.virtual && gpu.points.length > 1);
  const moving = content.gpus.some((gpu) => gpu.points.length > 1);
  if (moving && rich < 0 && virtualGpus.length) form.elements.among.value = "virtual";
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", update);
}

/** What the form asks, with selects that offer only what there is. */
function readForm() {
  const fields = form.elements;
  const network = Number(fields.network.value);
  const own = questions.filter((one) => one.network === network);
  fill(fields.pass, PASSES.filter((pass) => own.some((one) => one.pass === pass)).map((pass) => [pass, pass]));
  const gpus = amongOptions().find(([key]) => key === fields.among.value)[2];
  const ofPass = own.filter((one) => one.pass === fields.pass.value);
  const there = ofPass.filter((one) => one.rows.some((row) => gpus.includes(rows.gpu[row])));
  fill(fields.execution, (there.length ? there : ofPass).map((one) => [one.execution, one.execution]));
  const number = (field) => (field.value === "" ? Infinity : Number(field.value));
  const wrong = [fields.slowdown, fields.cap].find((field) => !field.validity.valid);
  return {
    refused: wrong && `${wrong.closest("label").firstChild.textContent.trim()}: write a number from ${wrong.min} up, or nothing.`,
    question: questionOf(network, fields.pass.value, fields.execution.value),
    objective: fields.objective.value,
    maxSlowdown: number(fields.slowdown) / 100,
    powerCap: number(fields.cap),
    gpus,
  };
}

/** "12 % less energy for 3 % more time than at its default clock", or what else is to say of a choice. */
function comparison(best, question, objective) {
  const gpu = gpuOf(best);
  const other = question.rows.find((row) => rows.gpu[row] === rows.gpu[best] && rows.point[row] === gpu.reference);
  const words = { energy: "energy", time: "time", edp: "energy × time" };
  if (gpu.points.length === 1) return "the only operating point of it that was measured";
  if (other === best || other === undefined) return `its default; no other allowed point takes less ${words[objective]}`;
  const reference = gpu.points[gpu.reference];
  const than = reference.name === "default" ? "at its default clock" : `at ${reference.name}, its highest clock`;
  const energy = change(rows.energy_j[best] / rows.energy_j[other]);
  const time = change(rows.time_s[best] / rows.time_s[other]);
  const first = objective === "time" ? [time, "time"] : [energy, "energy"];
  const second = objective === "time" ? [energy, "energy"] : [time, "time"];
  if (!Number.isFinite(rows.energy_j[best])) return time === null ? `as quick as ${than}` : `${time} time than ${than}`;
  if (first[0] === null) return second[0] === null ? `no different from what it takes ${than}` : `as much ${first[1]}, and ${second[0]} ${second[1]} than ${than}`;
  if (second[0] === null) return `${first[0]} ${first[1]} ${objective === "time" ? "for the same energy" : "in the same time"} as ${than}`;
  return `${first[0]} ${first[1]} for ${second[0]} ${second[1]} than ${than}`;
}

function fact(name, value, range) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, element("small", {}, range ?? "no interval is known")));
}

/** What such choices have cost where it was measured. */
function costOfChoice(answer, objective) {
  const gpu = gpuOf(answer.ordered[0]);
  const words = { energy: "energy", time: "time", edp: "energy × time" }[objective];
  if (!answer.regret) {
    return gpu.points.length > 1
      ? `The regret of choices on ${gpu.label} is unknown: no network was measured whole at two of its operating points.`
      : "";
  }
  const { networks, points, mean_regret: own, fixed_point: fixed, fixed_mean_regret: ofFixed } = answer.regret;
  const always = gpu.points.find((point) => point.name === fixed);
  return `Regret on ${counted(networks, "network")} measured whole at all ${points} operating points of ${gpu.label}: chosen points took ${percent(own)} more ${words} than the best point, on average. Running all of them at ${always ? atPoint(always) : fixed} took ${percent(ofFixed)} more.`;
}

function showAnswer(asked, answer) {
  const [sentence, facts] = [byId("answer-sentence"), byId("answer-facts")];
  const warnings = byId("answer-warnings");
  if (answer.refused) {
    sentence.textContent = answer.refused;
    facts.replaceChildren();
    for (const id of ["answer-cost", "answer-good", "answer-command"]) byId(id).textContent = "";
    warnings.hidden = true;
    if (answer.elsewhere) showCommand(asked);
    return;
  }
  const [best] = answer.ordered;
  const gpu = gpuOf(best);
  const where = element("em", {}, `${gpuWords(gpu)} at ${atPoint(pointOf(best))}`);
  sentence.replaceChildren(where, `: ${comparison(best, asked.question, asked.objective)}.`);
  const range = (low, high, unit) => {
    const found = interval(rows[low][best], rows[high][best], unit);
    return found && `90 %: ${found}`;
  };
  facts.replaceChildren(
    fact("Energy per pass", quantity(rows.energy_j[best], "J"), range("energy_low_j", "energy_high_j", "J")),
    fact("Time per pass", quantity(rows.time_s[best], "s"), range("time_low_s", "time_high_s", "s")),
    fact("Mean power", quantity(rows.power_w[best], "W"), rows.measured_share[best] === 1 ? "of operations measured there" : `${percent(rows.measured_share[best])} of its calls measured there`),
  );
  byId("answer-cost").textContent = costOfChoice(answer, asked.objective);
  const others = answer.ordered.slice(1, answer.asGood).map((row) => `${gpuOf(row).label} at ${atPoint(pointOf(row))}`);
  const kinds = new Set(answer.ordered.map((row) => gpuOf(row).virtual));
  byId("answer-good").textContent = [
    others.length ? `May be as good as the best: ${sentenceList(others)}.` : "",
    answer.allowed < answer.ordered.length ? `${answer.allowed} of ${answer.ordered.length} operating points keep to the limits.` : "",
    gpu.virtual ? `${gpu.label} is virtual: nothing was measured on real hardware.` : "",
    kinds.size === 1 && notAsked(asked.question, asked.gpus).length ? "Virtual GPUs are not predicted for this network here." : "",
    kinds.size > 1 ? "Measured and virtual GPUs are ranked together: intervals leave out how much a virtual GPU differs from the real one." : "",
  ].filter(Boolean).join(" ");
  showWarnings(warnings, answer.warnings);
  showCommand(asked);
}

function showWarnings(details, found) {
  details.hidden = !found.length;
  details.querySelector("summary").textContent = `${counted(found.length, "warning")}`;
  details.querySelector("ul").replaceChildren(...found.map((text) => element("li", {}, text)));
}

/** The same question for the command line, where the command takes it. */
function showCommand(asked) {
  const place = byId("answer-command");
  const network = content.networks[asked.question.network];
  const kinds = new Set(asked.gpus.map((gpu) => content.gpus[gpu].virtual));
  if (network.command === null || kinds.size > 1) {
    place.textContent = "";
    return;
  }
  const options = [`--pass ${asked.question.pass}`, `--objective ${asked.objective}`];
  options.push(`--precision ${asked.question.execution}`);
  if (asked.maxSlowdown !== Infinity) options.push(`--max-slowdown ${form.elements.slowdown.value}%`);
  if (asked.powerCap !== Infinity) options.push(`--power-cap ${asked.powerCap}`);
  if (asked.gpus.join() !== defaultGpus().join()) options.push(...asked.gpus.map((gpu) => `--gpu ${content.gpus[gpu].label}`));
  place.replaceChildren("The same in a terminal: ", element("code", {}, `clockwatt recommend ${network.command}`, ...options.flatMap((option) => [" ", element("span", {}, option)])));
}
