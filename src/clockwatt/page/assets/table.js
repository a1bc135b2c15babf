// The table of networks × GPUs × operating points × precisions: search, sort, pages, CSV.
const PAGE_ROWS = 15;
const FEW_ROWS = 5;
const questionAt = (row) => questions[rows.question[row]];
const measuredOr = (measured, predicted) => (row) => (Number.isFinite(rows[measured][row]) ? rows[measured][row] : rows[predicted][row]);
const off = (predicted, measured) => (row) => rows[predicted][row] / rows[measured][row] - 1;
const timeOf = measuredOr("measured_time_s", "time_s");
const energyOf = measuredOr("measured_energy_j", "energy_j");

/** A value with its error where it was measured; in italics, with its interval, where it is predicted. */
function valueCell(row, measured, error, predicted, unit, ends) {
  const value = rows[measured][row];
  if (!Number.isFinite(value)) {
    const range = ends && endsOf(rows[predicted][row], ...ends.map((name) => rows[name][row]));
    return element("span", { title: "predicted" }, element("i", {}, quantity(rows[predicted][row], unit)), range && element("small", {}, ` (${range})`));
  }
  const relative = error ? rows[error][row] / value : NaN;
  return element("span", {}, quantity(value, unit), element("small", {}, Number.isFinite(relative) ? ` ±${percent(relative)}` : ""));
}

const TABLE = [
  { head: "Network", text: true, value: (row) => content.networks[questionAt(row).network].name, cell: (row) => element("span", {}, content.networks[questionAt(row).network].name, element("small", {}, ` ${content.networks[questionAt(row).network].input}`)) },
  { head: "Pass", text: true, value: (row) => questionAt(row).pass },
  { head: "GPU", text: true, value: (row) => gpuOf(row).label, cell: (row) => element("span", {}, gpuOf(row).label, element("small", {}, gpuOf(row).virtual ? " virtual" : "")) },
  { head: "At", text: true, value: (row) => pointOf(row).clock_mhz, cell: (row) => pointOf(row).name },
  { head: "Precision", text: true, value: (row) => questionAt(row).execution },
  { head: "Time", value: timeOf, cell: (row) => valueCell(row, "measured_time_s", "measured_time_error_s", "time_s", "s", ["time_low_s", "time_high_s"]) },
  { head: "prediction off", value: off("left_out_time_s", "measured_time_s"), cell: (row) => percent(off("left_out_time_s", "measured_time_s")(row)) },
  { head: "Energy", value: energyOf, cell: (row) => valueCell(row, "measured_energy_j", "measured_energy_error_j", "energy_j", "J", ["energy_low_j", "energy_high_j"]) },
  { head: "prediction off", value: off("left_out_energy_j", "measured_energy_j"), cell: (row) => percent(off("left_out_energy_j", "measured_energy_j")(row)) },
  { head: "Power", value: measuredOr("measured_power_w", "power_w"), cell: (row) => valueCell(row, "measured_power_w", null, "power_w", "W") },
  { head: "Flags", text: true, value: (row) => content.flag_sets[rows.flags[row]].length, cell: (row) => content.flag_sets[rows.flags[row]].map(flagWords).join(", ") },
];
const table = { column: 0, down: false, shown: PAGE_ROWS, found: [], words: null };

/** What each row is searched in. */
function tableWords() {
  table.words ??= Array.from({ length: rowCount }, (_, row) => {
    const { network, pass, execution } = questionAt(row);
    const flags = content.flag_sets[rows.flags[row]].map(flagWords).join(" ");
    return `${content.networks[network].name} ${content.networks[network].input} ${pass} ${gpuWords(gpuOf(row))} ${gpuOf(row).name} ${pointOf(row).name} ${execution} ${flags}`.toLowerCase();
  });
  return table.words;
}

function findRows() {
  const wanted = byId("table-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const measured = byId("table-measured").checked;
  const words = tableWords();
  const { value } = TABLE[table.column];
  const found = [];
  for (let row = 0; row < rowCount; row++) {
    if ((!measured || Number.isFinite(rows.measured_time_s[row])) && wanted.every((word) => words[row].includes(word))) found.push(row);
  }
  const keys = new Map(found.map((row) => [row, value(row)]));
  const sign = table.down ? -1 : 1;
  const compare = (a, b) => {
    const [one, other] = [keys.get(a), keys.get(b)];
    if (typeof one === "string") return sign * one.localeCompare(other);
    // what is not known comes last, whichever way
    return Number.isFinite(one) && Number.isFinite(other) ? sign * (one - other) : Number.isFinite(other) - Number.isFinite(one);
  };
  table.found = found.sort((a, b) => compare(a, b) || a - b);
}

function showTable() {
  findRows();
  const heads = TABLE.map((column, at) => {
    const button = element("button", { type: "button" }, column.head);
    button.addEventListener("click", () => {
      table.down = table.column === at ? !table.down : false;
      table.column = at;
      table.shown = PAGE_ROWS;
      showTable();
      byId("table-rows").tHead.querySelectorAll("button")[at].focus();
    });
    const sorted = table.column === at ? { "aria-sort": table.down ? "descending" : "ascending" } : {};
    return element("th", { scope: "col", class: column.text ? "text" : "number", ...sorted }, button);
  });
  byId("table-rows").tHead.replaceChildren(element("tr", {}, ...heads));
  const shown = table.found.length <= table.shown + FEW_ROWS ? table.found.length : table.shown; // a button for one row is no use
  const lines = table.found.slice(0, shown).map((row) =>
    element("tr", {}, ...TABLE.map((column) => element("td", { class: column.text ? "text" : "number" }, (column.cell || column.value)(row)))),
  );
  byId("table-rows").tBodies[0].replaceChildren(...lines);
  byId("table-count").textContent = `${lines.length.toLocaleString("en")} of ${counted(table.found.length, "row")} shown`;
  byId("table-more").hidden = lines.length === table.found.length;
}

const CSV = {
  network: (row) => content.networks[questionAt(row).network].id, pass: (row) => questionAt(row).pass, gpu: (row) => gpuOf(row).label,
  gpu_name: (row) => gpuOf(row).name, virtual: (row) => gpuOf(row).virtual, point: (row) => pointOf(row).name, execution: (row) => questionAt(row).execution,
  ...Object.fromEntries(
    ["time_s", "time_low_s", "time_high_s", "energy_j", "energy_low_j", "energy_high_j", "power_w", "measured_share", "measured_time_s", "measured_time_error_s",
      "measured_energy_j", "measured_energy_error_j", "measured_power_w", "composed_time_s", "composed_energy_j", "summed_time_s", "summed_energy_j",
      "left_out_time_s", "left_out_energy_j"].map((name) => [name, (row) => known(rows[name][row])]),
  ),
  flags: (row) => content.flag_sets[rows.flags[row]].join(" "),
};

/** The rows found, as CSV in SI units; what is not known is empty. */
function tableCsv() {
  const quoted = (value) => (value === null ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const lines = table.found.map((row) => Object.values(CSV).map((value) => quoted(value(row))).join(","));
  return `${[Object.keys(CSV).join(","), ...lines].join("\n")}\n`;
}

function setUpTable() {
  byId("table-measured").checked = rows.measured_time_s.some(Number.isFinite);
  const again = () => {
    table.shown = PAGE_ROWS;
    showTable();
  };
  byId("table-search").addEventListener("input", again);
  byId("table-measured").addEventListener("change", again);
  byId("table-more").addEventListener("click", () => {
    table.shown += 100;
    showTable();
  });
  byId("table-csv").addEventListener("click", () => {
    const link = element("a", { href: URL.createObjectURL(new Blob([tableCsv()], { type: "text/csv" })), download: `clockwatt-${content.campaign}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  });
  showTable();
}
