// Draws the interactive figures with Vega-Lite; without scripts the static ones stay.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const AROUND = 75;  // pixels of a panel's axis and margins

  // Replaces the names of colours by those of the colour scheme.
  function coloured(value, theme) {
    if (typeof value === "string") return value.startsWith("colour:") ? theme[value.slice(7)] : value;
    if (Array.isArray(value)) return value.map((one) => coloured(one, theme));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, theme)]));
  }

  // As many panels side by side as the page is wide.
  function fitted(spec, width) {
    const panels = new Set(spec.data.values.map((record) => record.panel)).size;
    const longest = Math.max(0, ...spec.data.values.map((record) => (record.line ?? "").length));
    const names = longest ? Math.min(longest * 6.5, width * 0.42, 230) : 0;
    const most = Math.max(1, Math.min(panels, spec.columns, Math.floor((width - names) / 225)));
    const columns = Math.ceil(panels / Math.ceil(panels / most));
    const panel = Math.min(460, Math.floor((width - names) / columns) - AROUND + (names ? 30 : 0));
    const made = { ...spec, columns, spec: { ...spec.spec, width: Math.max(150, panel) } };
    made.config = { axisY: { labelLimit: names || 200 } };
    for (const unit of made.spec.layer ?? [made.spec]) {
      const color = unit.encoding.color;
      unit.encoding.color = { ...color, legend: { ...color.legend, columns: width < 500 ? 1 : 4 } };
    }
    made.title = { ...spec.title, text: wrapped(spec.title.text, width / 7.5) };
    return made;
  }

  function wrapped(text, most) {
    const lines = [""];
    for (const word of text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length + 1 > most) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines;
  }

  function config(theme) {
    const text = { labelColor: theme.ink, titleColor: theme.ink, labelFontSize: 11, titleFontSize: 11 };
    return {
      background: null,
      font: getComputedStyle(document.body).fontFamily,
      axis: { ...text, gridColor: theme.grey, gridOpacity: 0.25, domainColor: theme.grey, tickColor: theme.grey },
      legend: text, header: text, title: { color: theme.ink },
      view: { stroke: null }, mark: { color: theme.blue },
    };
  }

  async function draw(figure, specs) {
    const theme = COLOURS[dark.matches ? "dark" : "light"];
    const places = specs.map(() => document.createElement("div"));
    const width = figure.clientWidth;
    for (const [at, spec] of specs.entries()) {
      places[at].className = "chart";
      places[at].setAttribute("role", "img");
      places[at].setAttribute("aria-label", `Figure: ${spec.title.text || figure.querySelector("img").alt}`);
      const options = {
        actions: false, ast: true, defaultStyle: false, renderer: "svg", config: config(theme),
        tooltip: { disableDefaultStyle: true, theme: "custom" },
      };
      figure.append(places[at]);
      await vegaEmbed(places[at], coloured(fitted(spec, width), theme), options);
      // The label says what the figure is; the tables have its numbers.
      for (const svg of places[at].querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
    }
    figure.querySelector("picture").hidden = true;
    for (const old of figure.querySelectorAll(".chart")) if (!places.includes(old)) old.remove();
    figure.dataset.drawn = dark.matches ? "dark" : "light";
  }

  for (const data of document.querySelectorAll("script[data-chart]")) {
    const figure = document.querySelector(`figure[data-figure="${data.dataset.chart}"]`);
    const specs = JSON.parse(data.textContent);
    const again = () => draw(figure, specs);
    // Far below the screen a figure is drawn when the reader comes near.
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      again();
      dark.addEventListener("change", again);
    }, { rootMargin: "600px" });
    watch.observe(figure);
    addEventListener("beforeprint", () => { if (!figure.dataset.drawn) watch.disconnect(); });
  }
})();
