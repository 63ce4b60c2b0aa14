// Charts: lines over the last minutes, and bars. Plain SVG and boxes.

const CHART_SPAN_MS = 5 * 60_000;
// A chart that has just begun shows so much.
const CHART_SPAN_MIN_MS = 30_000;
const CHART = { height: 168, left: 62, right: 10, top: 10, bottom: 24 };

// The least 1, 2 or 5 times a power of ten that is not below.
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value);
}

// series: [{ name, of: (sample) => number or null }]; format writes a figure. isWhole: there are no
// halves of what is counted.
function lineChart(label, series, format, isWhole = false) {
  const svg = draw("svg", { role: "img", "aria-label": `${label}: no figures yet` });
  const keys = series.map((one, place) => {
    const latest = make("b", {}, NOTHING);
    return { latest, node: make("span", { class: place ? "key second" : "key" },
      `${one.name} `, latest) };
  });
  const legend = make("div", { class: "legend" }, keys.map((key) => key.node));
  const show = (samples) => {
    const width = Math.max(svg.clientWidth || 0, 240);
    svg.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
    const now = samples.length ? samples[samples.length - 1].at : Date.now();
    const since = samples.filter((sample) => sample.at >= now - CHART_SPAN_MS);
    const age = since.length ? now - since[0].at : 0;
    const span = Math.min(CHART_SPAN_MS, Math.max(CHART_SPAN_MIN_MS, age));
    const figures = since.flatMap((sample) => series.map((one) => one.of(sample)));
    const top = niceTop(Math.max(0, ...figures.filter(isNumber)));
    const inner = width - CHART.left - CHART.right;
    const x = (at) => CHART.left + inner * (1 - (now - at) / span);
    const tall = CHART.height - CHART.top - CHART.bottom;
    const y = (figure) => CHART.top + tall * (1 - figure / top);
    svg.replaceChildren(...axes(width, isWhole && top % 2 ? [0, top] : [0, top / 2, top], y, format,
      span), ...series.flatMap((one, place) =>
      lineOf(since, one, place, { x, y })));
    const words = series.map((one, place) => {
      const last = since.length ? one.of(since[since.length - 1]) : null;
      keys[place].latest.textContent = isNumber(last) ? format(last) : NOTHING;
      return `${one.name} ${keys[place].latest.textContent}`;
    });
    const latest = words.join(", ");
    svg.setAttribute("aria-label", `${label} over the last ${lasting(span)}; now ${latest}`);
  };
  return { node: make("div", { class: "chart", "data-name": label }, svg, legend), show };
}

function axes(width, figures, y, format, span) {
  const right = width - CHART.right;
  const lines = figures.map((figure) => [
    draw("line", { class: "grid", x1: CHART.left, x2: right, y1: y(figure), y2: y(figure) }),
    draw("text", { x: CHART.left - 8, y: y(figure) + 4, "text-anchor": "end" }, format(figure)),
  ]);
  const under = CHART.height - 5;
  return [...lines.flat(),
    draw("text", { x: CHART.left, y: under }, `${lasting(span)} ago`),
    draw("text", { x: right, y: under, "text-anchor": "end" }, "now")];
}

// A line, broken where there is no figure.
function lineOf(samples, one, place, { x, y }) {
  const kind = place ? "second" : "first";
  const pieces = [[]];
  for (const sample of samples) {
    const figure = one.of(sample);
    if (isNumber(figure)) pieces[pieces.length - 1].push([x(sample.at), y(figure)]);
    else if (pieces[pieces.length - 1].length) pieces.push([]);
  }
  const points = (piece) => piece.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
  const drawn = pieces.filter((piece) => piece.length);
  // A single figure is a line of no length with round ends.
  const d = drawn.map((piece) => `M${points(piece.length > 1 ? piece : [piece[0], piece[0]])}`);
  const last = drawn[drawn.length - 1]?.at(-1);
  const end = last ? [draw("circle", { class: `dot ${kind}`, cx: last[0], cy: last[1], r: 3 })] : [];
  const areas = place ? [] : drawn.filter((piece) => piece.length > 1).map((piece) =>
    draw("path", { class: "area first",
      d: `M${points(piece)}L${piece[piece.length - 1][0]} ${y(0)}L${piece[0][0]} ${y(0)}Z` }));
  return [...areas, draw("path", { class: `line ${kind}`, d: d.join("") }), ...end];
}

// rows: [[name, number, isBad]]
function barList(rows) {
  const most = Math.max(1, ...rows.map(([, number]) => number));
  return make("dl", { class: "bars" }, rows.map(([name, number, isBad]) => {
    const filled = make("span", { class: isBad ? "bar-fill bad" : "bar-fill" });
    filled.style.width = number > 0 ? `max(3px, ${(100 * number) / most}%)` : "0";
    return [make("dt", {}, name),
      make("div", { class: "bar-track", "aria-hidden": "true" }, filled),
      make("dd", { class: "count" }, count(number))];
  }));
}

function progress(part, of, label) {
  const percent = of > 0 ? Math.min(100, (100 * part) / of) : 100;
  const filled = make("span");
  filled.style.width = `${percent}%`;
  return make("div", { class: "progress", role: "progressbar", "aria-label": label,
    "aria-valuenow": Math.round(percent), "aria-valuemin": 0, "aria-valuemax": 100 }, filled);
}

// The duration in ms that a share of what a histogram counted since `before` does not exceed; null:
// nothing was counted.
function quantile(histogram, before, part) {
  if (!histogram) return null;
  const counts = histogram.counts.map((number, place) => number - (before?.counts[place] ?? 0));
  const all = counts.reduce((sum, number) => sum + number, 0);
  if (!(all > 0)) return null;
  let rest = all * part;
  for (let place = 0; place < counts.length; place += 1) {
    if (counts[place] >= rest && counts[place] > 0) {
      const low = place ? histogram.le_us[place - 1] : 0;
      const high = histogram.le_us[place] ?? low * 2;
      return (low + (high - low) * (rest / counts[place])) / 1_000;
    }
    rest -= counts[place];
  }
  return null;
}
