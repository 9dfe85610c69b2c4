// Sorting by number, filters by axis, and the measurements behind a number. Pages are complete
// without it.
"use strict";
(() => {
  const LEAST_LINES = 16;  // shorter tables need no filters
  const MOST_CHOICES = 40;

  function add(parent, name, text = "", attributes = {}) {
    const made = document.createElement(name);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  const linesOf = (table) => [...table.tBodies[0].rows];

  // Numbers sort by their unrounded values, the greatest first, cells without one last. Words sort
  // in the order in which the table has them, which is the reading order of an axis.
  function sort(head) {
    const table = head.closest("table");
    table.lines ??= linesOf(table);
    const cells = new Map(table.lines.map((line) => [line, line.cells[head.cellIndex]]));
    const isNumber = [...cells.values()].some((cell) => "value" in cell.dataset);
    const words = [...new Set([...cells.values()].map((cell) => cell.textContent))];
    const rank = (cell) => words.indexOf(cell.textContent);
    const isDescending = head.getAttribute("aria-sort") === (isNumber ? "descending" : "ascending")
      ? !isNumber : isNumber;
    const sign = isDescending ? -1 : 1;
    const compare = (one, other) => {
      const [a, b] = [cells.get(one), cells.get(other)];
      if (!isNumber) return sign * (rank(a) - rank(b));
      const lacking = !("value" in a.dataset) - !("value" in b.dataset);
      return lacking || sign * (Number(a.dataset.value) - Number(b.dataset.value)) || 0;
    };
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    table.tBodies[0].append(...[...table.lines].sort(compare));
  }

  function addFilters(block) {
    const table = block.querySelector("table");
    if (linesOf(table).length < LEAST_LINES) return;
    const bar = document.createElement("div");
    bar.className = "filters";
    const chosen = [];
    for (const head of table.querySelectorAll("th[data-axis]")) {
      const words = new Set(linesOf(table).map((line) => line.cells[head.cellIndex].textContent));
      if (words.size < 2 || words.size > MOST_CHOICES) continue;
      const select = add(add(bar, "label", head.textContent), "select");
      add(select, "option", "all", { value: "" });
      for (const text of words) add(select, "option", text, { value: text });
      select.addEventListener("change", apply);
      chosen.push([head.cellIndex, select]);
    }
    if (!chosen.length) return;
    const count = add(bar, "span", "", { role: "status" });
    function apply() {
      const wanted = chosen.filter(([, select]) => select.value);
      const lines = linesOf(table);
      for (const line of lines) {
        line.hidden = wanted.some(([at, select]) => line.cells[at].textContent !== select.value);
      }
      const shown = lines.filter((line) => !line.hidden).length;
      count.textContent = wanted.length ? `${shown} of ${lines.length} lines` : "";
    }
    block.prepend(bar);
  }

  const dialog = document.getElementById("cell");
  const { labels, rows } = JSON.parse(document.getElementById("rows").textContent);
  const rowsOf = (cell) => (cell?.dataset.row ?? "").split(" ").filter((key) => key in rows);
  const hasRow = (cell) => rowsOf(cell).length > 0;

  function show(cell) {
    const head = cell.closest("table.data")?.tHead.rows[0].cells[cell.cellIndex];
    const list = dialog.querySelector("dl");
    list.replaceChildren();
    const { value, low, high, rows: all } = cell.dataset;
    const said = low ? `${value} (${low} to ${high})` : value ?? cell.textContent;
    const shown = rowsOf(cell);
    const of = shown.flatMap((row) => labels.map((label, at) => [label, rows[row][at]]));
    const more = all > shown.length ? [["rows", `the first ${shown.length} of ${all}`]] : [];
    const texts = [[head?.textContent ?? "number", said], ...more, ...of];
    for (const [label, text] of texts) {
      if (text === "") continue;
      add(list, "dt", label);
      add(list, "dd", text);
    }
    dialog.showModal();
  }

  // Arrow keys move between the cells of a table, Enter opens one: a table is one stop of Tab.
  function move(event) {
    const block = event.target.closest(".scroll");
    const head = event.target.closest("th");
    if (event.key === "Enter" && head) return sort(head);
    const cell = event.target.closest("td, data");
    if ((!block && cell?.tagName !== "DATA") || head) return;
    if (event.key === "Enter" && hasRow(cell)) {
      event.preventDefault();  // the key would press the button of the dialog that it opens
      return show(cell);
    }
    const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
    const step = steps[event.key];
    if (!step || cell?.tagName === "DATA") return;
    const shown = [...block.querySelectorAll("tbody tr")].filter((line) => !line.hidden);
    const from = cell ? [shown.indexOf(cell.parentNode), cell.cellIndex] : null;
    const at = from ? [from[0] + step[0], from[1] + step[1]] : [0, 0];
    const next = shown[at[0]]?.cells[at[1]];
    if (!next) return;
    next.tabIndex = -1;
    next.focus();
    event.preventDefault();
  }

  document.documentElement.classList.add("scripted");
  document.addEventListener("keydown", move);
  document.addEventListener("click", (event) => {
    const cell = event.target.closest("td, data");
    const head = event.target.closest("table.data th");
    if (head) sort(head);
    if (hasRow(cell) && !event.target.closest("a")) show(cell);
    if (event.target === dialog) dialog.close();
  });
  for (const block of document.querySelectorAll(".table")) addFilters(block);
  for (const head of document.querySelectorAll("table.data th")) head.tabIndex = 0;
  for (const cell of document.querySelectorAll("td[data-row], data[data-row]")) {
    cell.classList.toggle("has-row", hasRow(cell));
    if (cell.tagName === "DATA" && hasRow(cell)) cell.tabIndex = 0;
  }
  for (const hint of document.querySelectorAll(".hint")) hint.hidden = false;
})();
