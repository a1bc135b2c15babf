// The choice among candidates. Their order and what is as good come from `recommend`; here limits leave some of them out.

const asGoodBits = Object.fromEntries(Object.entries(content.as_good).map(([objective, all]) => [objective, all.map(unpack)]));

/** How many of the first candidates, the best included, are within error of the best. */
function asGood(question, ordered, objective) {
  const bits = asGoodBits[objective][question.number];
  const first = question.rows[0]; // a question's rows follow one another
  const start = (ordered[0] - first) * question.rows.length;
  const within = (row) => (bits[(start + row - first) >> 3] >> (7 - ((start + row - first) & 7))) & 1;
  const end = ordered.findIndex((row) => !within(row));
  return end < 0 ? ordered.length : end;
}

/** What `hosts.different_hosts` says of the candidates that keep to the limits. */
function differentHosts(question, allowed) {
  const told = allowed.filter((row) => rows.told_for_host[row]);
  const gpus = [...new Set(told.map((row) => rows.gpu[row]))];
  const paced = gpus.filter((gpu) => told.some((row) => rows.gpu[row] === gpu && rows.host_paced[row]));
  const hosts = new Set(gpus.map((gpu) => content.gpus[gpu].hosts[question.pass]));
  if (gpus.length < 2 || !paced.length || (hosts.size === 1 && !hosts.has(null))) return [];
  return [content.different_hosts.replace("{}", paced.map((gpu) => content.gpus[gpu].label).join(" and "))];
}

const NOT_ASKED =
  "Virtual GPUs are not predicted for this network here, since it was measured on real GPUs alone. Choose among those, or predict in a terminal.";

/** Which of some GPUs, by number, the page asks nothing about a question's network. */
function notAsked(question, gpus) {
  return gpus.filter((gpu) => content.gpus[gpu].virtual && !content.networks[question.network].on_virtual);
}

/**
 * Where a pass costs least.
 *
 * @param question One of `questions`.
 * @param limits {objective, maxSlowdown (0.1 is 10 %), powerCap (W), gpus (numbers)}; what is not limited is Infinity.
 * @returns {ordered, allowed, asGood, regret, warnings} with rows best first, or {refused} with a sentence; {elsewhere} if the command answers.
 */
function recommend(question, { objective, maxSlowdown, powerCap, gpus }) {
  const candidates = question.rows.filter((row) => gpus.includes(rows.gpu[row]));
  const ranks = rows[`rank_${objective}`]; // -1 where it is not known
  const place = (row) => (ranks[row] < 0 ? rowCount : ranks[row]);
  if (!candidates.some((row) => ranks[row] >= 0)) {
    const without = gpus.filter((gpu) => content.without_room.some(([q, g]) => q === question.number && g === gpu));
    if (notAsked(question, gpus).length === gpus.length) return { refused: NOT_ASKED, elsewhere: true };
    return {
      refused: without.length
        ? `The pass does not fit the memory of ${sentenceList(without.map((gpu) => content.gpus[gpu].label))}.`
        : `None of the selected GPUs predicts the ${objective === "edp" ? "energy" : objective} of this pass.`,
    };
  }
  const fastest = Math.min(...candidates.map((row) => rows.time_s[row]));
  const keeps = (row) => {
    const power = Number.isFinite(rows.power_w[row]) ? rows.power_w[row] : Infinity;
    return rows.time_s[row] <= fastest * (1 + maxSlowdown) && (powerCap === Infinity || power <= powerCap);
  };
  const kept = new Map(candidates.map((row) => [row, keeps(row)]));
  const allowed = candidates.filter((row) => kept.get(row)).length;
  if (!allowed) {
    // the fastest keeps to the slowdown, so that the cap alone is too low for what is left
    const inTime = candidates.filter((row) => rows.time_s[row] <= fastest * (1 + maxSlowdown));
    const least = inTime.filter((row) => Number.isFinite(rows.power_w[row])).sort((a, b) => rows.power_w[a] - rows.power_w[b])[0];
    const kept = inTime.length < candidates.length ? "Among fast enough candidates, the" : "The";
    return {
      refused: least === undefined
        ? "No candidate meets the limits: mean power is unknown, because idle power was not calibrated."
        : `No candidate meets the limits. ${kept} least mean power is ${quantity(rows.power_w[least], "W")}, on ${gpuOf(least).label} at ${atPoint(pointOf(least))}.`,
    };
  }
  const ordered = [...candidates].sort((a, b) => kept.get(b) - kept.get(a) || place(a) - place(b));
  const regret = (content.regrets[gpuOf(ordered[0]).label] || []).find(
    (one) => one.pass === question.pass && one.execution === question.execution && one.objective === objective,
  );
  const warnings = [
    ...((content.warnings[question.number] || {})[rows.gpu[ordered[0]]] || []),
    ...differentHosts(question, candidates.filter((row) => kept.get(row))),
  ];
  return { ordered, allowed, asGood: asGood(question, ordered.slice(0, allowed), objective), regret: regret || null, warnings };
}

/** GPUs that `recommend` takes where none is named: the measured ones, or all where there are no others. */
const defaultGpus = () => (measuredGpus.length ? measuredGpus : virtualGpus);
