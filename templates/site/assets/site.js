// Sorting by number, filters by axis, and the measurement behind a cell. Pages are complete without it.
"use strict";
(() => {
  const WORDS = {
    median_ms: "median of single calls", low_ms: "interval", calls: "calls", sustained_ms: "sustained",
    clock_mhz: "processor clock",
    commit: "commit", measured: "measured at", marks: "marks", key: "key of the row",
  };
  const UNITS = { median_ms: " ms", sustained_ms: " ms", clock_mhz: " MHz" };

  function add(parent, name, text = "", attributes = {}) {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  // The sorter reads `data-sort`; a cell without a number sorts last in a column of numbers.
  function prepareToSort(table) {
    const at = [...table.tHead.rows[0].cells].findIndex((head) => head.hasAttribute("aria-sort"));
    const cells = [...table.tBodies[0].rows].map((row) => row.cells[at]);
    if (!cells.some((cell) => "value" in cell.dataset)) return;
    for (const cell of cells) cell.dataset.sort = cell.dataset.value ?? "";
  }

  function addFilters(block) {
    const table = block.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const axes = heads.filter((head) => "axis" in head.dataset);
    if (!axes.length) return;
    const bar = document.createElement("div");
    bar.className = "filters";
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    const chosen = axes.map((head) => {
      const label = add(bar, "label", head.textContent);
      const select = add(label, "select");
      const words = new Set([...table.tBodies[0].rows].map((row) => row.cells[head.cellIndex].textContent));
      for (const text of ["all", ...words]) add(select, "option", text, { value: text === "all" ? "" : text });
      select.addEventListener("change", apply);
      return [head.cellIndex, select];
    });
    function apply() {
      const wanted = chosen.filter(([, select]) => select.value);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = wanted.some(([at, select]) => row.cells[at].textContent !== select.value);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = wanted.length ? `${shown} of ${table.tBodies[0].rows.length} lines` : "";
    }
    bar.append(count);
    block.prepend(bar);
  }

  const dialog = document.getElementById("cell");
  let rows = null;

  function rowOf(cell) {
    rows ??= JSON.parse(document.getElementById("rows").textContent);
    const [names, ...values] = rows;
    const row = values[Number(cell.dataset.row)];
    return Object.fromEntries(names.map((name, place) => [name, row[place]]));
  }

  function describe(list, name, value) {
    add(list, "dt", name);
    add(list, "dd", String(value));
  }

  function show(cell) {
    const row = rowOf(cell);
    const head = cell.closest("table").tHead.rows[0].cells[cell.cellIndex];
    const list = dialog.querySelector("dl");
    list.replaceChildren();
    dialog.querySelector("h2").textContent = row.name;
    const { value, low, high, n } = cell.dataset;
    describe(list, head.textContent, value ?? cell.textContent);
    if (low) describe(list, "interval", `${low} to ${high}`);
    if (n) describe(list, "n", n);
    // A cell that shows a time of its row says so once.
    for (const name of ["median_ms", "sustained_ms"]) if (Number(value) === row[name]) row[name] = null;
    if (Number(low) === row.low_ms) row.high_ms = null;
    if (Number(n) === row.calls) row.calls = null;
    for (const [name, words] of Object.entries(WORDS)) {
      if (row[name] === null || row[name] === "" || name === "low_ms" && row.high_ms === null) continue;
      if (name === "low_ms") describe(list, "interval of the median", `${row.low_ms} to ${row.high_ms} ms`);
      else describe(list, words, row[name] + (UNITS[name] ?? ""));
    }
    const command = dialog.querySelector(".command");
    command.hidden = row.command === null;
    command.querySelector("code").textContent = row.command ?? "";
    dialog.showModal();
  }

  // Arrow keys move between the cells of a table, Enter opens one: a table is one stop of Tab.
  function move(event) {
    const block = event.target.closest(".scroll");
    if (!block || !block.querySelector("td[data-row]")) return;
    const cell = event.target.closest("td");
    if (event.key === "Enter" && cell && "row" in cell.dataset) {
      event.preventDefault();  // the key would press the button of the dialog that it opens
      return show(cell);
    }
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const step = steps[event.key];
    if (!step || event.target.closest("th")) return;
    const shown = [...block.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
    const at = cell ? [shown.indexOf(cell.parentNode) + step[0], cell.cellIndex + step[1]] : [0, 0];
    const next = shown[at[0]]?.cells[at[1]];
    if (!next) return;
    next.tabIndex = -1;
    next.focus();
    event.preventDefault();
  }

  document.documentElement.classList.add("scripted");
  document.addEventListener("sort-start", (event) => prepareToSort(event.target));
  document.addEventListener("keydown", move);
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("td[data-row]");
    if (cell && !event.target.closest("a")) show(cell);
    if (event.target === dialog) dialog.close();
  });
  for (const block of document.querySelectorAll(".table[data-filtered]")) addFilters(block);
  for (const hint of document.querySelectorAll(".hint")) hint.hidden = false;
})();
