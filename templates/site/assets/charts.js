// Draws the interactive figures with Vega-Lite; without scripts the static ones stay.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const AROUND = 80;  // pixels of a panel's axis and margins
  const WIDEST = 460;  // pixels of a panel

  // As many panels side by side as the page is wide.
  function fitted(spec, width) {
    const words = spec.title && wrapped(spec.title.text.join(" "), width / 8);
    const title = words && { ...spec.title, text: words };
    const made = title ? { ...spec, title } : { ...spec };
    if (spec.vconcat) return { ...made, vconcat: spec.vconcat.map((one) => fitted(one, width)) };
    const panel = spec.spec ?? spec;
    const names = widthOfNames(panel, spec.data.values, width);
    const count = spec.facet ? new Set(spec.data.values.map((record) => record.panel)).size : 1;
    const most = Math.max(1, Math.min(count, spec.columns ?? 1, Math.floor((width - names) / 225)));
    const columns = Math.ceil(count / Math.ceil(count / most));
    const wanted = Math.floor((width - names) / columns) - AROUND;
    const inner = { ...narrowed(panel, width), width: Math.max(150, Math.min(WIDEST, wanted)) };
    return spec.facet ? { ...made, columns, spec: inner } : { ...made, ...inner, title };
  }

  // Pixels of the names of bars, which are beside the first panel.
  function widthOfNames(panel, records, width) {
    const { field, type } = (panel.layer?.[0] ?? panel).encoding.y;
    if (type !== "nominal") return 0;
    const longest = Math.max(...records.map((record) => String(record[field] ?? "").length));
    return Math.min(longest * 6.5, width * 0.42, 230);
  }

  // A panel whose legend has a single column where the page is narrow.
  function narrowed(panel, width) {
    if (panel.layer) return { ...panel, layer: panel.layer.map((one) => narrowed(one, width)) };
    if (width >= 500) return panel;
    const encoding = Object.fromEntries(Object.entries(panel.encoding).map(([channel, one]) => {
      return [channel, one.legend ? { ...one, legend: { ...one.legend, columns: 1 } } : one];
    }));
    return { ...panel, encoding };
  }

  function wrapped(text, most) {
    const lines = [""];
    for (const word of text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length + 1 > most) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines;
  }

  async function draw(figure, text) {
    const theme = dark.matches ? "dark" : "light";
    const { colours, config } = THEMES[theme];
    const spec = JSON.parse(text.replace(/"colour:(\w+)/g, (_, name) => `"${colours[name]}`));
    const place = document.createElement("div");
    place.className = "chart";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", figure.querySelector("img").alt);
    const font = getComputedStyle(document.body).fontFamily;
    const options = {
      actions: false, ast: true, defaultStyle: false, renderer: "svg", config: { ...config, font },
      tooltip: { disableDefaultStyle: true, theme: "custom" },
    };
    const width = figure.clientWidth;
    figure.append(place);
    await vegaEmbed(place, fitted(spec, width), options);
    // The label says what the figure is; the tables have its numbers.
    for (const svg of place.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
    figure.querySelector("picture").hidden = true;
    for (const old of figure.querySelectorAll(".chart")) if (old !== place) old.remove();
    figure.dataset.drawn = theme;
  }

  for (const data of document.querySelectorAll("script[data-chart]")) {
    const figure = document.querySelector(`figure[data-spec="${data.dataset.chart}"]`);
    const again = () => draw(figure, data.textContent);
    // Far below the screen a figure is drawn when the reader comes near.
    const watch = new IntersectionObserver((seen) => {
      if (!seen.some((one) => one.isIntersecting)) return;
      watch.disconnect();
      again();
      dark.addEventListener("change", again);
    }, { rootMargin: "600px" });
    watch.observe(figure);
  }
})();
