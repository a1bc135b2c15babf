// What the page knows, unpacked. Columns of numbers come as bytes in base64; nothing known is not a number there.
const content = JSON.parse(document.getElementById("content").textContent);

const KINDS = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u1: Uint8Array };

/** The numbers of a packed column. */
function unpack(column) {
  const [kind] = Object.keys(column);
  const text = atob(column[kind]);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[kind](bytes.buffer);
}

const rows = Object.fromEntries(Object.entries(content.candidates).map(([name, column]) => [name, unpack(column)]));
const rowCount = rows.question.length;

const questions = content.questions.map(([network, pass, execution], number) => ({ number, network, pass, execution, rows: [] }));
for (let row = 0; row < rowCount; row++) questions[rows.question[row]].rows.push(row);

const PASSES = ["inference", "training"].filter((pass) => questions.some((one) => one.pass === pass));
const measuredGpus = content.gpus.map((gpu, number) => number).filter((number) => !content.gpus[number].virtual);
const virtualGpus = content.gpus.map((gpu, number) => number).filter((number) => content.gpus[number].virtual);

/** The question about a network (by number), a pass and execution settings; undefined where there is none. */
function questionOf(network, pass, execution) {
  return questions.find((one) => one.network === network && one.pass === pass && one.execution === execution);
}

const known = (value) => (Number.isFinite(value) ? value : null);
const pointOf = (row) => content.gpus[rows.gpu[row]].points[rows.point[row]];
const gpuOf = (row) => content.gpus[rows.gpu[row]];
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : null;
};
