// Ask, answer, draw. What a reader chooses stays in the page: nothing is stored.

/** The answer first, then the plots that follow it, as soon as they are there. */
function update() {
  state.asked = readForm();
  if (!state.asked.question) {
    showAnswer(state.asked, { refused: content.networks.length ? "Nothing is known of this pass." : "No network is in this campaign: there is nothing to choose a clock for." });
    return;
  }
  state.answer = state.asked.refused ? { refused: state.asked.refused } : recommend(state.asked.question, state.asked);
  showAnswer(state.asked, state.answer);
  if (state.drawn) drawAsked();
}

function drawAsked() {
  showTradeoff(state.asked, state.answer);
  showCurves(state.asked);
  showJoules(state.asked, state.answer);
}

function drawAll() {
  Object.values(plots).forEach(paint);
  if (state.asked?.question) drawAsked();
  showNetworks();
  showTrust();
  showMethod();
}

/** For the console and for tests: the answer to a question in the words of `clockwatt recommend --json`. */
function ask({ network, pass, execution = "tf32", objective = "energy", maxSlowdown = Infinity, powerCap = Infinity, gpus = null }) {
  const number = content.networks.findIndex((one) => one.id === network);
  const question = questionOf(number, pass, execution);
  const labels = gpus ?? defaultGpus().map((gpu) => content.gpus[gpu].label);
  const chosen = content.gpus.map((gpu, at) => at).filter((at) => labels.includes(content.gpus[at].label));
  const answer = recommend(question, { objective, maxSlowdown, powerCap, gpus: chosen });
  if (answer.refused) return answer;
  const candidate = (row) => ({
    gpu: gpuOf(row).label, point: pointOf(row).name, time_s: rows.time_s[row], energy_j: known(rows.energy_j[row]), power_w: known(rows.power_w[row]),
    time_interval: [known(rows.time_low_s[row]), known(rows.time_high_s[row])], energy_interval: [known(rows.energy_low_j[row]), known(rows.energy_high_j[row])],
  });
  return {
    objective, best: candidate(answer.ordered[0]), candidates: answer.ordered.map(candidate), allowed: answer.allowed, as_good: answer.asGood, regret: answer.regret,
    warnings: answer.warnings,
  };
}

async function start() {
  setUpForm();
  update();
  setUpTable();
  setUpNetworks();
  setUpTrust();
  setUpMethod();
  byId("curves-axis").addEventListener("change", () => showCurves(state.asked));
  byId("joules-gpu").addEventListener("change", (event) => {
    event.target.dataset.chosen = event.target.value;
    showJoules(state.asked, state.answer);
  });
  await embedPlots();
  state.drawn = true;
  drawAll();
  dark.addEventListener("change", () => {
    update();
    drawAll();
  });
  window.addEventListener("resize", () => state.asked?.question && showJoules(state.asked, state.answer));
  document.documentElement.dataset.ready = "yes";
}

window.clockwatt = { ask, state, csv: tableCsv };
start();
